"""Trainings by Ultralytics with mending; skipped where it is not installed."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import boxmend
from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.integrations import ultralytics as mending
from boxmend.repair.mender import prescreen as mender_prescreen

pytest.importorskip("ultralytics", reason="needs boxmend[ultralytics]")

from ultralytics import YOLO
from ultralytics.data.build import InfiniteDataLoader
from ultralytics.utils.nms import non_max_suppression

from boxmend.integrations.ultralytics import attaching
from boxmend.integrations.ultralytics.labels import to_pixels
from boxmend.integrations.ultralytics.predicting import (
    Predictor,
    ensure_supported_model,
    select_detections,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages

IMAGES, SIDE = 40, 64


@dataclass(frozen=True)
class Noisy:
    """A drawn dataset in YOLO's format, with noise, and its truth."""

    yaml: Path
    clean: Path

    @property
    def dataset(self) -> Dataset:
        return boxmend.load(f"{self.yaml}:train")


@pytest.fixture
def noisy(tmp_path: Path) -> Noisy:
    clean, out = tmp_path / "clean", tmp_path / "noisy"
    tokens = ["--images", str(IMAGES), "--size", str(SIDE), "--format", "yolo"]
    assert run(["synth", "--out", str(clean), *tokens]) == 0
    noise = ["--labels", "symmetric:0.3", "--boxes", "uniform:0.2"]
    assert run(["noise", str(clean / "data.yaml"), "--out", str(out), *noise]) == 0
    return Noisy(out / "data.yaml", clean / "data.yaml")


def train(model: Any, noisy: Noisy, **options: Any) -> Any:
    """Train a model for a few small steps; return its trainer."""
    defaults = {
        "data": str(noisy.yaml),
        "epochs": 4,
        "imgsz": SIDE,
        "batch": 8,
        "device": "cpu",
        "plots": False,
        "val": False,
        "verbose": False,
        "project": str(noisy.yaml.parent.parent / "yolo"),
        "name": "first",
        "exist_ok": True,
    }
    model.train(**{**defaults, **options})
    return model.trainer


class Oracle:
    """Stands in for a detector that finds all true objects."""

    def __init__(self, noisy: Noisy):
        self.clean = boxmend.load(f"{noisy.clean}:train")
        self.num_calls = 0

    def __call__(self, predictor: Predictor, trainer: Any) -> boxmend.Predictions:
        self.num_calls += 1
        clean = self.clean
        class_scores = np.full((len(clean), len(clean.label_names)), 0.01)
        class_scores[np.arange(len(clean)), clean.labels] = 0.9
        names = [clean.images.file_names[row] for row in clean.image_rows]
        return boxmend.Predictions(
            names,
            clean.boxes,
            clean.labels,
            np.full(len(clean), 0.9),
            label_names=clean.label_names,
            class_scores=class_scores,
        )


@pytest.fixture
def oracle(noisy: Noisy, monkeypatch: pytest.MonkeyPatch) -> Oracle:
    oracle = Oracle(noisy)
    monkeypatch.setattr(Predictor, "predict", lambda *args: oracle(*args))
    return oracle


def read_labels(trainer: Any, dataset: Dataset) -> dict[str, list[tuple[int, ...]]]:
    """Return class and rounded corners of a loader's annotations by file name."""
    found = {}
    for label in trainer.train_loader.dataset.labels:
        boxes = to_pixels(label["bboxes"], np.array([SIDE, SIDE], float))
        rows = np.concatenate([label["cls"], boxes], axis=1).round().astype(int)
        found[Path(label["im_file"]).name] = sorted(map(tuple, rows.tolist()))
    return found


def expected_labels(dataset: Dataset, mended: Any) -> dict[str, list[tuple[int, ...]]]:
    """Return the same of the annotations of a Mender."""
    found: dict[str, list[tuple[int, ...]]] = {
        Path(name).name: [] for name in dataset.images.file_names
    }
    for row, image in enumerate(mended.image_rows.tolist()):
        if mended.weights[row] > 0:
            box = mended.boxes[row].clip(0, SIDE).round().astype(int).tolist()
            name = Path(dataset.images.file_names[image]).name
            found[name].append((int(mended.labels[row]), *box))
    return {name: sorted(rows) for name, rows in found.items()}


def count_differences(first: dict[str, Any], second: dict[str, Any]) -> int:
    """Count annotations that differ by more than rounding."""
    assert first.keys() == second.keys()
    pairs = ((np.array(first[name]), np.array(second[name])) for name in first)
    return sum(
        int((np.abs(a - b) > 1).any(axis=-1).sum()) if a.shape == b.shape else len(a)
        for a, b in pairs
    )


@pytest.mark.parametrize("name", ["yolov8n.yaml", "yolo11n.yaml"])
def test_a_mended_training_leaves_a_run_that_all_commands_take(
    noisy: Noisy, oracle: Oracle, tmp_path: Path, name: str
) -> None:
    model, out = YOLO(name), tmp_path / "run"
    attached = mending.attach(model, out, warm_up=0.25, every=1)
    trainer = train(model, noisy, epochs=6)
    assert oracle.num_calls == 5  # after epochs 2 to 5, and at the end
    assert attached.run is not None
    changed = attached.run.mended()
    wrong = (noisy.dataset.labels != oracle.clean.labels).sum()
    assert (changed.labels != oracle.clean.labels).sum() < wrong / 2
    assert run(["report", str(out)]) == 0
    assert run(["audit", str(out)]) in (0, 1)
    mended = tmp_path / "mended"
    assert run(["apply", str(out), "--out", str(mended)]) == 0
    assert run(["revert", str(mended)]) == 0
    for path in sorted((noisy.yaml.parent / "labels" / "train").glob("*.txt")):
        again = mended / path.relative_to(noisy.yaml.parent)
        assert again.read_bytes() == path.read_bytes()
    assert (trainer.wdir / "last.mender.npz").is_file()


def test_the_loader_gets_the_mended_annotations_and_its_cache_keeps_the_noisy_ones(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    model = YOLO("yolo11n.yaml")
    attached = mending.attach(model, tmp_path / "run", warm_up=0.25, every=1)
    seen: list[tuple[int, int]] = []

    def compare(trainer: Any) -> None:
        assert attached.mender is not None
        dataset, now = attached.mender.dataset, attached.mender.annotations()
        labels = read_labels(trainer, dataset)
        assert count_differences(labels, expected_labels(dataset, now)) == 0
        seen.append((trainer.epoch, int((now.labels != dataset.labels).sum())))

    model.add_callback("on_train_epoch_end", compare)
    train(model, noisy, epochs=6)
    assert [epoch for epoch, _ in seen] == list(range(6))
    assert [number for _, number in seen][:2] == [0, 0]
    assert seen[-1][1] > 10
    other = train(YOLO("yolo11n.yaml"), noisy, epochs=1, name="second")
    plain = expected_labels(
        noisy.dataset, boxmend.Mender(noisy.dataset, out=tmp_path / "x").annotations()
    )
    assert count_differences(read_labels(other, noisy.dataset), plain) == 0


def test_a_prescreen_changes_the_labels_from_the_first_epoch_on(
    noisy: Noisy, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lenient = replace(mender_prescreen.LIMITS, max_interval=0.5)  # for few annotations
    monkeypatch.setattr(mender_prescreen, "LIMITS", lenient)
    annotated, true = noisy.dataset.labels, oracle.clean.labels
    num_labels = len(noisy.dataset.label_names)
    prescreen = np.full((len(true), num_labels), 0.01 / (num_labels - 1))
    prescreen[np.arange(len(true)), true] = 0.99
    model = YOLO("yolo11n.yaml")
    mending.attach(model, tmp_path / "run", prescreen=prescreen, warm_up=0.5)
    counts: list[Any] = []

    def count(trainer: Any) -> None:
        classes = [label["cls"] for label in trainer.train_loader.dataset.labels]
        rounded = np.concatenate(classes).astype(int).ravel()
        counts.append(np.bincount(rounded, minlength=num_labels))

    model.add_callback("on_train_epoch_end", count)
    train(model, noisy, epochs=2)
    before, after = (np.bincount(labels, minlength=num_labels) for labels in (annotated, true))
    assert np.abs(before - after).sum() > 10
    assert np.abs(counts[0] - after).sum() < np.abs(before - after).sum() / 2


def test_the_processes_of_a_loader_see_the_mended_annotations(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    model = YOLO("yolo11n.yaml")
    attached = mending.attach(model, tmp_path / "run", warm_up=0.25, every=1)
    counts: list[list[int]] = []

    def use_processes(trainer: Any) -> None:  # Ultralytics starts none for a CPU
        images = trainer.train_loader.dataset
        trainer.train_loader = InfiniteDataLoader(
            dataset=images, batch_size=8, num_workers=2, collate_fn=images.collate_fn
        )

    def count(trainer: Any) -> None:
        batches = list(trainer.train_loader)
        classes = torch.cat([batch["cls"].flatten() for batch in batches]).int()
        counts.append(torch.bincount(classes, minlength=6).tolist())

    model.add_callback("on_pretrain_routine_end", use_processes)
    model.add_callback("on_train_epoch_end", count)
    train(model, noisy, mosaic=0.0, translate=0.0, scale=0.0, epochs=6)
    assert counts[0] == np.bincount(noisy.dataset.labels, minlength=6).tolist()
    assert attached.mender is not None
    labels = attached.mender.annotations().labels
    assert sum(counts[-1]) == len(labels)
    assert counts[-1] != counts[0]
    assert np.abs(np.bincount(labels, minlength=6) - counts[-1]).sum() <= 4


def test_detections_are_those_of_ultralytics() -> None:
    draw = torch.Generator().manual_seed(0)
    boxes = torch.rand(3, 4, 200, generator=draw, dtype=torch.float64) * 60 + 20
    scores = torch.rand(3, 5, 200, generator=draw, dtype=torch.float64) ** 20
    output = torch.cat([boxes, scores], dim=1)
    found = select_detections(output)
    theirs = non_max_suppression(output, conf_thres=0.01, iou_thres=0.7, max_det=100)
    for image, other in enumerate(theirs):
        used = found.is_used[image]
        order = other[:, 4].argsort(descending=True)
        assert len(order) > 20
        torch.testing.assert_close(found.boxes[image][used], other[order, :4])
        torch.testing.assert_close(found.scores[image][used], other[order, 4])
        assert found.labels[image][used].tolist() == other[order, 5].tolist()


class RectangleFinder(torch.nn.Module):
    """Finds the bright rectangle in each image, as the head of a YOLO detector would say it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 1))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor]:
        rows = []
        for image in images:
            y, x = (image.mean(0) > 0.8).nonzero().T
            left, top, right, bottom = x.min(), y.min(), x.max() + 1, y.max() + 1
            box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
            rows.append([*map(float, box), 0.9, 0.1])
        return (torch.tensor(rows)[:, :, None],)


@pytest.mark.parametrize("cache", [False, "ram"])
def test_boxes_are_in_pixels_of_images_of_all_shapes(tmp_path: Path, cache: Any) -> None:
    sizes = [(40, 120), (200, 50), (64, 64), (90, 70), (30, 30), (333, 100)]  # width, height
    boxes = [[w * 0.25, h * 0.5, w * 0.75, h * 0.9] for w, h in sizes]
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for number, ((width, height), box) in enumerate(zip(sizes, boxes, strict=True)):
        pixels = np.zeros((height, width, 3), np.uint8)
        left, top, right, bottom = np.round(box).astype(int)
        pixels[top:bottom, left:right] = 255
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.7 0.5 0.4\n")
    yaml = tmp_path / "data.yaml"
    yaml.write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: [a, b]\n")
    noisy = Noisy(yaml, yaml)
    trainer = train(YOLO("yolo11n.yaml"), noisy, epochs=1, batch=2, cache=cache)
    trainer.ema.ema = RectangleFinder()
    found = Predictor(trainer, noisy.dataset).detect(trainer, select_detections)
    assert sorted(found.image_rows.tolist()) == list(range(len(sizes)))
    for row, box in zip(found.image_rows, found.boxes, strict=True):
        scale = max(1.0, max(sizes[row]) / SIDE)  # pixels of the image per pixel of the input
        np.testing.assert_allclose(box, boxes[row], atol=1.2 * scale)


@pytest.mark.parametrize("soft", [True, False])
def test_the_loss_takes_soft_labels(
    noisy: Noisy, oracle: Oracle, tmp_path: Path, soft: bool
) -> None:
    model = YOLO("yolo11n.yaml")
    settings = boxmend.MenderSettings(soft_labels=soft)
    mending.attach(model, tmp_path / "run", settings, warm_up=0.25, every=1)
    found: list[bool] = []

    def look(trainer: Any) -> None:
        assigner = trainer.model.criterion.assigner
        batch = next(iter(trainer.train_loader))
        is_encoded = bool((batch["cls"] % 1 > 0).any())
        encoded = torch.tensor([[[1 + (2 * 32 + 8) / (256 * 32)]]])  # 0.25 of class 2
        box, points = torch.tensor([[[0.0, 0, 64, 64]]]), torch.full((20, 2), 32.0)
        scores = assigner(
            torch.full((1, 20, 6), 0.5),
            box.expand(1, 20, 4),
            points,
            encoded,
            box,
            torch.ones(1, 1, 1),
        )[2].sum((0, 1))
        share = (scores / scores.sum()).tolist()
        assert share == pytest.approx([0, 0.75, 0.25, 0, 0, 0] if soft else [0, 1, 0, 0, 0, 0])
        found.append(is_encoded)

    model.add_callback("on_train_end", look)
    train(model, noisy, epochs=6, optimizer="SGD", lr0=0.0)
    assert len(found) == 1
    assert soft or not found[0]


def test_a_failed_update_is_logged_and_the_training_goes_on(
    noisy: Noisy,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(mender: boxmend.Mender, epoch: int, predictions: boxmend.Predictions) -> None:
        raise DataError("the boxes do not fit")

    monkeypatch.setattr(boxmend.Mender, "update", fail)
    model = YOLO("yolo11n.yaml")
    attached = mending.attach(model, tmp_path / "run", warm_up=0.25, every=1)
    trainer = train(model, noisy)
    assert (attached.run, trainer.last.is_file()) == (None, True)
    assert "epoch 1: no update, and the training continues" in caplog.text
    assert "the boxes do not fit" in caplog.text
    assert "no update succeeded, so" in caplog.text


def stop_after(epoch: int) -> Callable[[Any], None]:
    def stop(trainer: Any) -> None:
        if trainer.epoch == epoch:
            raise KeyboardInterrupt

    return stop


def test_a_resumed_training_continues_with_the_state_of_its_checkpoint(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    model = YOLO("yolo11n.yaml")
    first = mending.attach(model, out, warm_up=0.2, every=1)
    model.add_callback("on_fit_epoch_end", stop_after(3))
    with pytest.raises(KeyboardInterrupt):
        train(model, noisy, epochs=6)
    first.release()  # of the folder; a new process need not
    assert first.mender is None
    last = tmp_path / "yolo" / "first" / "weights" / "last.pt"
    model = YOLO(last)
    again = mending.attach(model, out, warm_up=0.2, every=1)
    starts: list[Any] = []

    def look(trainer: Any) -> None:
        starts.append(again.mender.num_updates)  # type: ignore[union-attr]

    model.add_callback("on_train_start", look)
    model.train(resume=True)
    assert starts == [3]
    assert again.run is not None
    assert len(np.unique(again.run.ledger["epoch"])) == 6  # after epochs 1 to 5, and at the end


def test_a_resumed_training_without_a_state_is_an_error(noisy: Noisy, tmp_path: Path) -> None:
    model = YOLO("yolo11n.yaml")
    model.add_callback("on_fit_epoch_end", stop_after(1))
    with pytest.raises(KeyboardInterrupt):
        train(model, noisy)
    model = YOLO(tmp_path / "yolo" / "first" / "weights" / "last.pt")
    mending.attach(model, tmp_path / "run")
    with pytest.raises(DataError, match=r"last\.mender\.npz does not exist"):
        model.train(resume=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"single_cls": True}, "does not support single_cls=True"),
        ({"classes": [0, 1]}, r"does not support classes=\[0, 1\]"),
        ({"fraction": 0.5}, r"does not support fraction=0\.5"),
    ],
)
def test_options_that_change_the_annotations_are_refused_before_the_training(
    noisy: Noisy, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    model = YOLO("yolo11n.yaml")
    mending.attach(model, tmp_path / "run")
    with pytest.raises(UsageError, match=message):
        train(model, noisy, **options)
    assert not (tmp_path / "run").exists()


def test_other_models_are_refused_before_the_training(noisy: Noisy, tmp_path: Path) -> None:
    model = YOLO("yolov10n.yaml")
    mending.attach(model, tmp_path / "run")
    with pytest.raises(UsageError, match="v10Detect; boxmend supports YOLOv8, YOLO11 and"):
        train(model, noisy)
    with pytest.raises(UsageError, match="the model ends with Segment"):
        ensure_supported_model(YOLO("yolo11n-seg.yaml").model)


def test_a_dataset_with_other_classes_or_images_is_refused(noisy: Noisy, tmp_path: Path) -> None:
    others = [
        (noisy.dataset.subset(image_ids=noisy.dataset.images.ids[:3].tolist()), "has the image"),
    ]
    named = noisy.dataset
    named.label_names = ("a", "b", "c", "d", "e", "f")
    others.append((named, "has the classes arrow, gear, .* has a, b"))
    for dataset, message in others:
        model = YOLO("yolo11n.yaml")
        mending.attach(model, tmp_path / "run", dataset=dataset)
        with pytest.raises(DataError, match=message):
            train(model, noisy)


def test_labels_that_are_not_those_of_the_dataset_are_noticed(noisy: Noisy, tmp_path: Path) -> None:
    dataset = noisy.dataset  # older than the label files
    path = next((noisy.yaml.parent / "labels" / "train").glob("*.txt"))
    text = path.read_text()
    path.write_text(str((int(text[0]) + 1) % 6) + text[1:])
    model = YOLO("yolo11n.yaml")
    mending.attach(model, tmp_path / "run", dataset=dataset)
    with pytest.raises(DataError, match=r"in 1 of .* Delete Ultralytics' cache"):
        train(model, noisy)


def test_a_folder_that_has_a_run_is_refused_before_the_training(
    noisy: Noisy, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("x")
    model = YOLO("yolo11n.yaml")
    mending.attach(model, tmp_path / "run")
    with pytest.raises(BoxmendError, match="run"):
        train(model, noisy)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_loader_that_is_built_again_gets_the_mended_annotations(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    model = YOLO("yolo11n.yaml")
    attached = mending.attach(model, tmp_path / "run", warm_up=0.1, every=1)
    checked: list[int] = []

    def rebuild(trainer: Any) -> None:
        if trainer.epoch == 4:
            trainer.train_loader = trainer.get_dataloader(
                trainer.data["train"], batch_size=8, rank=-1, mode="train"
            )
            attached.begin_epoch(trainer)
            assert attached.mender is not None
            dataset, now = attached.mender.dataset, attached.mender.annotations()
            labels = read_labels(trainer, dataset)
            checked.append(count_differences(labels, expected_labels(dataset, now)))

    model.add_callback("on_train_epoch_start", rebuild)
    train(model, noisy, epochs=6)
    assert checked == [0]
    assert oracle.num_calls == 6


def test_the_trainer_for_several_gpus_mends_in_one_process(
    noisy: Noisy, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXMEND_ULTRALYTICS", "{}")  # restored afterwards
    trainer = mending.configure(
        tmp_path / "run", boxmend.MenderSettings(missing="off"), warm_up=0.25, every=2
    )
    train(YOLO("yolo11n.yaml"), noisy, trainer=trainer)
    assert oracle.num_calls == 3
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert "off" in json.dumps(settings)
    assert boxmend.open_run(tmp_path / "run").summary()


def test_images_in_a_rectangular_order_are_mended(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    model = YOLO("yolo11n.yaml")
    attached = mending.attach(model, tmp_path / "run", warm_up=0.25, every=1)
    train(model, noisy, rect=True)
    assert attached.run is not None


def test_the_command_trains_a_yolo_model(
    noisy: Noisy, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def judge(dataset: Dataset, *, weights: str) -> Any:
        asked.append((len(dataset), weights))
        return np.full((len(dataset), len(dataset.label_names)), np.nan)  # judges nothing

    monkeypatch.setattr(attaching, "judge_labels", judge)
    out = tmp_path / "run"
    tokens = ["--trainer", "ultralytics:yolo11n.yaml", "--device", "cpu", "--epochs", "2"]
    tokens += ["--prescreen", "weights.safetensors"]
    sizes = ["--image-size", str(SIDE), "--batch-size", "8"]
    with pytest.warns(UserWarning, match="says too little about the label noise"):
        assert run(["train", str(noisy.yaml), "--out", str(out), *tokens, *sizes]) == 0
    assert asked == [(len(noisy.dataset), "weights.safetensors")]
    assert f"the run is {out}" in capfd.readouterr().err
    assert (tmp_path / "run-yolo" / "weights" / "last.pt").is_file()
    assert run(["train", str(noisy.yaml), "--out", str(out), *tokens, *sizes]) == 3


def test_missing_weights_of_a_prescreen_are_named_before_the_training(
    noisy: Noisy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, weights = tmp_path / "run", tmp_path / "nowhere.safetensors"
    tokens = ["--trainer", "ultralytics:yolo11n.yaml", "--prescreen", str(weights)]
    assert run(["train", str(noisy.yaml), "--out", str(out), *tokens]) == 2
    error = capfd.readouterr().err
    assert f"cannot be prescreened: {weights}: no such weight file. A prescreen takes" in error
    assert not (tmp_path / "run-yolo").exists()
    model = YOLO("yolo11n.yaml")
    mending.attach(model, out, prescreen=weights)
    with pytest.raises(UsageError, match="cannot be prescreened"):
        train(model, noisy)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("yolov8n.yaml", "nowhere/data.yaml", r"nowhere/data\.yaml.*: no such file or folder"),
        ("nomodel.yaml", None, r"no model nomodel\.yaml, and there is no such file"),
    ],
)
def test_a_wrong_model_or_dataset_of_the_command_is_named(
    noisy: Noisy, tmp_path: Path, model: str, data: str | None, message: str
) -> None:
    with pytest.raises(BoxmendError, match=message):
        mending.train(model, data or noisy.yaml, tmp_path / "out")
    assert not (tmp_path / "out").exists()
