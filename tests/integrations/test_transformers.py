"""Trainings by Hugging Face's Trainer with mending; skipped where it is not installed."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import boxmend
from boxmend.cli import run
from boxmend.errors import DataError, UsageError
from tests.integrations.noisy_toys import SIDE, NoisyToys, draw_noisy_toys
from tests.integrations.uneven_images import RectangleFinder, make_uneven_images
from tests.test_python_pages import blocks, with_changes

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("transformers", reason="needs boxmend[transformers]")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import (
        DetrImageProcessor,
        RTDetrConfig,
        RTDetrForObjectDetection,
        RTDetrImageProcessor,
        RTDetrResNetConfig,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from boxmend.integrations.transformers import (
        MendingTrainerCallback,
        TrainingImages,
        collate,
        predict,
    )
    from boxmend.integrations.transformers import callbacks as mending

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages


def make_tiny_rt_detr(num_labels: int) -> Any:
    """Return an RT-DETR with random weights that is small enough to train in a test."""
    torch.manual_seed(0)
    backbone = RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    return RTDetrForObjectDetection(
        RTDetrConfig(
            backbone_config=backbone,
            num_labels=num_labels,
            d_model=16,
            encoder_hidden_dim=16,
            encoder_in_channels=[16, 16, 16],
            encoder_ffn_dim=16,
            encoder_attention_heads=2,
            decoder_in_channels=[16, 16, 16],
            decoder_ffn_dim=16,
            decoder_attention_heads=2,
            decoder_layers=1,
            num_queries=20,
            num_denoising=4,
        )
    )


def make_processor(**options: Any) -> Any:
    return RTDetrImageProcessor(**{"size": {"height": SIDE, "width": SIDE}, **options})


def make_processors() -> dict[str, Any]:
    """Return processors that resize, that pad, and that of DETR as on the page."""
    size = {"max_height": SIDE, "max_width": SIDE}
    pad_size = {"height": SIDE, "width": SIDE}
    return {
        "resized": make_processor(),
        "padded": make_processor(size=size, do_pad=True, pad_size=pad_size),
        "detr": DetrImageProcessor(size=size, pad_size=pad_size),  # as on the page
    }


@pytest.fixture(params=["resized", "padded", "detr"])
def processor(request: pytest.FixtureRequest) -> Any:
    return make_processors()[request.param]


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[NoisyToys]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield draw_noisy_toys(tmp_path)
    torch.set_num_threads(threads)


@pytest.fixture
def oracle(toys: NoisyToys, monkeypatch: pytest.MonkeyPatch) -> NoisyToys:
    """Predictions are the true objects."""
    monkeypatch.setattr(mending, "predict", lambda *args, **options: toys.detect())
    return toys


class Recorder(TrainerCallback):  # type: ignore[misc]  # untyped if not installed
    """Records the sum of the labels of all items at the end of each epoch; can fail in one.

    It also records how often detections were made until then.
    """

    def __init__(self, images: TrainingImages, toys: NoisyToys):
        self.images, self.toys, self.fails_in_epoch = images, toys, -1.0
        self.sums: dict[float, int] = {}
        self.num_calls: dict[float, int] = {}

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        items = (self.images[row] for row in range(len(self.images)))
        self.num_calls[state.epoch] = self.toys.num_calls
        self.sums[state.epoch] = sum(int(item["labels"]["class_labels"].sum()) for item in items)

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if state.epoch == self.fails_in_epoch:
            raise RuntimeError("the power is out")


class Training:
    """A training of a few small steps."""

    def __init__(self, toys: NoisyToys, folder: Path, **options: Any):
        self.toys, self.folder = toys, folder
        self.images = TrainingImages(toys.noisy, make_processor())
        self.callback = MendingTrainerCallback(
            self.images, folder / "run", **{"warm_up": 0.2, "every": 1, **options}
        )
        self.recorder = Recorder(self.images, toys)

    def train(self, *, resume: Any = None, model: Any = None, **options: Any) -> Any:
        defaults = {
            "num_train_epochs": 6,
            "per_device_train_batch_size": 8,
            "use_cpu": True,
            "report_to": "none",
            "save_strategy": "epoch",
            "save_total_limit": 2,
            "disable_tqdm": True,
            "seed": 0,
        }
        trainer = Trainer(
            model or make_tiny_rt_detr(len(self.toys.noisy.label_names)),
            TrainingArguments(self.folder / "checkpoints", **{**defaults, **options}),
            train_dataset=self.images,
            data_collator=collate,
            callbacks=[self.callback, self.recorder],
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer


def test_a_mended_training_leaves_a_run(oracle: NoisyToys, tmp_path: Path) -> None:
    training = Training(oracle, tmp_path)
    training.train()
    assert oracle.num_calls == 6  # after epochs 1 to 5, and at the end
    assert list(training.recorder.num_calls.values()) == [0, 1, 2, 3, 4, 5]
    assert training.callback.run is not None
    assert oracle.count_wrong(oracle.noisy.labels) > 20
    assert oracle.count_wrong(training.callback.run.mended().labels) < 10
    assert run(["apply", str(tmp_path / "run"), "--out", str(tmp_path / "mended")]) == 0
    sums = list(training.recorder.sums.values())
    assert sums[0] == oracle.noisy.labels.sum()
    assert sums[-1] != sums[0]
    names = [path.name for path in (tmp_path / "checkpoints").glob("*/mender.npz")]
    assert len(names) == 2  # in the checkpoints that save_total_limit keeps


def test_a_real_model_predicts_and_trains(toys: NoisyToys, tmp_path: Path) -> None:
    training = Training(toys, tmp_path, every=2)
    before = make_tiny_rt_detr(6).state_dict()
    trainer = training.train(num_train_epochs=2, dataloader_num_workers=1)
    after = trainer.model.state_dict()
    name = next(name for name in before if name.endswith("attn.q_proj.weight"))
    assert not torch.equal(before[name], after[name])
    assert training.callback.mender is not None
    assert training.callback.mender.num_updates == 2
    found = predict(trainer.model, training.images)
    assert len(found) == 20 * len(training.images)  # one for each query
    assert found.boxes.max() <= 1.5 * SIDE


def test_a_resumed_training_equals_an_uninterrupted_one(oracle: NoisyToys, tmp_path: Path) -> None:
    whole = Training(oracle, tmp_path / "a")
    whole.train()
    broken = Training(oracle, tmp_path / "b")
    broken.recorder.fails_in_epoch = 4
    with pytest.raises(RuntimeError, match="the power is out"):
        broken.train()
    broken.callback.release()
    resumed = Training(oracle, tmp_path / "b")
    resumed.train(resume=True)
    assert sorted(resumed.recorder.sums) == [5, 6]
    assert {**broken.recorder.sums, **resumed.recorder.sums} == whole.recorder.sums
    assert whole.callback.run is not None
    assert resumed.callback.run is not None
    first, second = whole.callback.run.ledger, resumed.callback.run.ledger
    assert first.to_arrow().equals(second.to_arrow())


def test_a_training_resumed_within_an_epoch_has_no_second_update(
    oracle: NoisyToys, tmp_path: Path
) -> None:
    broken = Training(oracle, tmp_path)
    broken.recorder.fails_in_epoch = 2.8  # after the checkpoint at 2.4 epochs: 5 steps each
    steps = {"save_strategy": "steps", "save_steps": 12}
    with pytest.raises(RuntimeError, match="the power is out"):
        broken.train(**steps)
    broken.callback.release()
    resumed = Training(oracle, tmp_path)
    resumed.train(resume=True, **steps)
    assert resumed.recorder.num_calls == {3: 2, 4: 3, 5: 4, 6: 5}
    assert oracle.num_calls == 6
    assert resumed.callback.mender is not None
    assert resumed.callback.mender.num_updates == 6


def test_a_resumed_training_without_a_state_is_an_error(toys: NoisyToys, tmp_path: Path) -> None:
    plain = Training(toys, tmp_path)
    plain.callback = TrainerCallback()
    plain.train(num_train_epochs=1)
    with pytest.raises(DataError, match=r"checkpoint-5/mender\.npz does not exist"):
        Training(toys, tmp_path).train(resume=True)
    assert not (tmp_path / "run").exists()


def test_a_failed_update_is_logged_and_the_training_goes_on(
    toys: NoisyToys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **options: Any) -> boxmend.Predictions:
        return boxmend.Predictions(["no such image"], [[0, 0, 9, 9]], [0], [0.5])

    lines: list[str] = []
    monkeypatch.setattr(mending, "predict", fail)
    monkeypatch.setattr(mending.LOGGER, "error", lambda text, **options: lines.append(text))
    training = Training(toys, tmp_path)
    trainer = training.train()
    assert (trainer.state.epoch, training.callback.run) == (6, None)
    assert "epoch 2: no update, and the training continues" in lines[1]
    assert "no such image" in lines[1]
    assert "no update succeeded, so" in lines[-1]


def test_detections_are_in_pixels_of_images_of_all_shapes(tmp_path: Path, processor: Any) -> None:
    dataset = make_uneven_images(tmp_path / "uneven")
    images = TrainingImages(dataset, processor)
    model = RectangleFinder()
    found = predict(model, images, batch_size=4)
    assert list(found.image_ids) == list(dataset.images.ids)
    assert list(found.labels) == ["b"] * 6
    assert model.training
    for box, annotated, size in zip(found.boxes, dataset.boxes, dataset.images.sizes, strict=True):
        scale = max(1.0, *size / SIDE)  # pixels of the image per pixel of the input
        np.testing.assert_allclose(box, annotated, atol=1.2 * scale)


def test_items_have_the_annotations_as_shares_of_the_input(tmp_path: Path, processor: Any) -> None:
    images = TrainingImages(make_uneven_images(tmp_path / "uneven"), processor)
    batch = collate([images[row] for row in range(len(images))])
    assert batch["pixel_values"].shape == (6, 3, SIDE, SIDE)
    assert ("pixel_mask" in batch) == bool(processor.do_pad)
    expected = RectangleFinder()(batch["pixel_values"]).pred_boxes[:, 0]
    found = torch.cat([label["boxes"] for label in batch["labels"]])
    torch.testing.assert_close(found, expected, atol=1.2 / SIDE, rtol=0)
    assert [label["class_labels"].tolist() for label in batch["labels"]] == [[1]] * 6


def test_a_transform_augments_items_but_no_predictions(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    augment = blocks("adapters.md")[1].partition("checkpoint =")[0].replace("toys:train", "")
    augment = augment.replace('dataset = boxmend.load("")', "")
    exec(augment, names)
    names["random"] = SimpleNamespace(random=lambda: 0.0)  # mirrors every image
    dataset = make_uneven_images(tmp_path / "uneven")
    dataset.boxes[:, 2] -= 5
    images = TrainingImages(dataset, make_processor(), transform=names["augment"])
    width = dataset.images.widths[1]
    x1, _, x2, _ = dataset.boxes[1]
    center, size = (width - (x1 + x2) / 2) / width, (x2 - x1) / width
    box = images[1]["labels"]["boxes"][0]
    np.testing.assert_allclose(box[[0, 2]], [center, size], atol=1e-6)
    pixels = np.asarray(images.read(1))
    assert pixels[40, 60].tolist() == [255] * 3  # as stored


def test_trainings_that_cannot_be_mended_are_refused(toys: NoisyToys, tmp_path: Path) -> None:
    training = Training(toys, tmp_path)
    with pytest.raises(UsageError, match="persistent workers keep a copy"):
        training.train(dataloader_persistent_workers=True, dataloader_num_workers=1)
    with pytest.raises(UsageError, match="the model has 4 labels, and the dataset has 6"):
        training.train(model=make_tiny_rt_detr(4))
    with pytest.raises(UsageError, match="2 processes; boxmend supports one"):
        training.callback._ensure_supported(SimpleNamespace(world_size=2), None, None)
    training.images = TrainingImages(toys.noisy, make_processor())
    with pytest.raises(UsageError, match="has another train_dataset"):
        training.train()
    assert not (tmp_path / "run").exists()


def test_mixed_precision_does_not_round_predictions(toys: NoisyToys) -> None:
    """A Trainer replaces `forward` of the model; predictions use the original one."""
    model = make_tiny_rt_detr(6)
    images = TrainingImages(toys.noisy, make_processor())
    expected = predict(model, images).boxes
    model.forward = lambda **inputs: pytest.fail("this is the one with mixed precision")
    np.testing.assert_array_equal(predict(model, images).boxes, expected)


def test_the_example_of_the_page_mends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    boxmend.synthesize("toys", images=10)
    make_tiny_rt_detr(4).save_pretrained("tiny")
    make_processor().save_pretrained("tiny")
    code = with_changes(
        blocks("adapters.md")[1],
        {
            "PekingU/rtdetr_r18vd": "tiny",
            "num_train_epochs=12": "num_train_epochs=3, use_cpu=True, report_to='none'",
        },
    )
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["mending"].run.is_finished
    assert names["mending"].mender.num_updates == 2  # after epoch 1, and at the end
