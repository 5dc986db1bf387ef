"""The Python of the pages, run as it stands there but for the size of things."""

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import detection

import boxmend
from boxmend.detector import DetectorNumbers, build, save
from boxmend.runs.folder import create
from boxmend.training.card import ModelCard
from tests import ROOT

DOCS = ROOT / "docs"
SIDE = 96


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def with_changes(code: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(threads)


def write_coco(folder: Path) -> None:
    """The two images of the first example, in a folder beside the file."""
    (folder / "train2017").mkdir()
    for number in (1, 2):
        Image.new("RGB", (60, 40), (9, 99, 90 * number)).save(folder / f"train2017/{number}.png")
    document = {
        "images": [{"id": k, "file_name": f"{k}.png", "width": 60, "height": 40} for k in (1, 2)],
        "annotations": [{"id": 5, "image_id": 2, "category_id": 1, "bbox": [3, 4, 20, 30]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (folder / "instances_train.json").write_text(json.dumps(document))


def write_yolo_with_wrong_labels(folder: Path) -> dict[str, Any]:
    """Write toys as YOLO with some wrong labels; return detections of the right ones as arrays."""
    boxmend.synthesize(folder / "drawn", images=60)
    clean = boxmend.load(folder / "drawn:train")
    noise = boxmend.NoiseSettings(labels="symmetric:0.1", missing=0.05)
    boxmend.disturb(clean, noise).dataset.save(folder / "noisy", format="yolo")
    for path in (folder / "noisy").iterdir():
        path.rename(folder / path.name)
    random = np.random.default_rng(0)
    return {
        "image_ids": [clean.images.file_names[row] for row in clean.image_rows],
        "boxes": clean.boxes + random.uniform(-1, 1, clean.boxes.shape),
        "labels": [clean.label_names[label] for label in clean.labels],
        "scores": random.beta(8, 1.5, len(clean)),
    }


def test_the_page_about_python_audits_without_files(tmp_path: Path) -> None:
    names = write_yolo_with_wrong_labels(tmp_path)
    auditing, selecting, converting, tables, *_ = blocks("python.md")
    fast = "boxmend.audit(dataset, predictions, boxmend.AuditSettings(probe=0.0))"
    exec(with_changes(auditing, {"boxmend.audit(dataset, predictions)": fast}), names)
    audit, mended = names["audit"], names["mended"]
    assert len(audit.fixes) > len(mended.changes) > 0
    assert {"data.yaml", "changes.csv", "patch.json"} <= {x.name for x in Path("mended").iterdir()}
    assert boxmend.revert("mended") is not None
    names["detector_labels"] = np.array([1, 2, 3])
    for name in ("image_ids", "boxes", "scores"):
        names[name] = names[name][:3]
    with pytest.raises(boxmend.BoxmendError, match=r"predictions.labels\[0\] is 'cat'"):
        exec(with_changes(selecting, {"predictions.select": "predictions.resolve"}), names)
    exec(selecting, names)
    assert len(names["predictions"]) == 0  # the toys have no cats
    names["model"] = SimpleNamespace(predict=lambda source, conf: [])
    exec(converting, names)
    exec(tables, names)
    assert names["first"]["fix"] == names["audit"].fixes["fix"][0]
    assert len(names["missing"]) > 0
    assert names["arrow"].num_rows == len(names["frame"]) == len(audit.fixes)


def test_the_page_about_python_runs_from_loading_to_predicting(tmp_path: Path) -> None:
    write_coco(tmp_path)
    loading, saving, arrays, others, whole_way, _ = blocks("python.md")[4:]
    saving = with_changes(saving, {'format="yolo"': 'format="yolo", allow_lossy=True'})
    others = with_changes(others, {"images=100": "images=2"})
    whole_way = with_changes(
        whole_way,
        {"images=400": "images=10", "epochs=14": "epochs=2", "0.5)": "0.0)"},
    )
    names: dict[str, Any] = {"boxmend": boxmend}
    for block in (loading, saving, arrays, others, whole_way):
        exec(block, names)
    assert len(names["dataset"]) == 1
    assert [len(names[name]) for name in ("cats", "part", "large")] == [1, 1, 1]
    assert len(boxmend.load("drawn-boxes").images) == 2
    assert names["comparison"] is not None
    run = names["run"]
    assert run.is_finished
    noisy = boxmend.load("noisy")
    assert set(run.ledger["annotation_id"].tolist()) <= set(noisy.annotation_ids.tolist())
    assert len(names["relabelled"]) < len(run.ledger)
    assert run.metrics["step"].max() > 0
    assert len(boxmend.load("mended-toys")) == len(noisy)
    assert (run.path / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert 0 <= json.loads((run.path / "evaluation.json").read_bytes())["AP50"] <= 1
    results = json.loads((tmp_path / "predicted.json").read_bytes())
    assert results == list(names["predicted"].results())
    assert results


def write_resnet50(folder: Path) -> None:
    """A finished run of a random resnet50, whose scores and boxes differ visibly."""
    torch.manual_seed(2)
    made = build("resnet50", 3, numbers=DetectorNumbers())
    with torch.no_grad():
        made.network.rpn.head.cls_logits.weight.mul_(8)
        made.network.roi_heads.box_predictor.cls_score.weight.mul_(4)
    run = create(folder, {}, {})
    card = ModelCard("resnet50", ("cat", "dog", "bird"), (1, 2, 3), f"{SIDE}/128")
    save(made, folder / "model.safetensors", card.metadata())
    run.finish()


def write_photo(path: Path, width: int, height: int) -> None:
    cells = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(cells).resize((width, height)).save(path)


def test_torchvisions_own_model_finds_what_predict_finds(tmp_path: Path) -> None:
    write_resnet50(tmp_path / "runs/voc")
    write_photo(tmp_path / "photo.jpg", 128, SIDE)
    names: dict[str, Any] = {}
    exec(blocks("python.md")[-1], names)
    theirs = names["detections"]
    ours = boxmend.predict("runs/voc", ["photo.jpg"])
    assert len(ours) == len(theirs["labels"]) > 10
    assert (ours.detections.labels + 1).tolist() == theirs["labels"].tolist()
    np.testing.assert_allclose(ours.detections.scores, theirs["scores"], atol=1e-4)
    np.testing.assert_allclose(ours.detections.boxes, theirs["boxes"], atol=2e-2)
    assert type(names["model"].backbone.body.bn1) is torch.nn.BatchNorm2d  # theirs, not ours


def test_the_page_about_evaluation_scores_a_file_and_a_run(tmp_path: Path) -> None:
    write_coco(tmp_path)
    (tmp_path / "train2017").rename(tmp_path / "images")
    write_resnet50(tmp_path / "runs/voc")
    entry = {"image_id": 2, "category_id": 1, "bbox": [3, 4, 20, 30], "score": 0.9}
    (tmp_path / "found.json").write_text(json.dumps([entry]))
    code = blocks("evaluation.md")[0]
    names: dict[str, Any] = {}
    changes = {
        "annotations/instances_val2017.json": "instances_train.json",
        "VOC2007:test": "instances_train.json",
        'scores.by_label["cat"]["AP50"]': 'by_file = scores.by_label["cat"]["AP50"]',
        'scores.figures["AP"], ': "",
    }
    exec(with_changes(code, changes), names)
    assert names["by_file"] == pytest.approx(1.0)
    scores = names["scores"]
    assert scores.num_detections > 0
    assert set(scores.by_label) == {"cat"}
    assert (tmp_path / "runs/voc/evaluation.json").is_file()
    written = json.loads((tmp_path / "found-by-run.json").read_bytes())
    assert {one["category_name"] for one in written} == {"cat", "dog", "bird"}
    assert sum(one["category_name"] == "cat" for one in written) == scores.num_detections


SMALL = {
    "min_size": 64,
    "max_size": SIDE,
    "rpn_pre_nms_top_n_train": 60,
    "rpn_post_nms_top_n_train": 30,
    "rpn_batch_size_per_image": 32,
    "box_batch_size_per_image": 16,
}


def small_stock_model(weights_backbone: str, num_classes: int) -> Any:
    """torchvision's own model without its download, at a size for a test."""
    assert weights_backbone == "DEFAULT"
    made = detection.faster_rcnn.fasterrcnn_resnet50_fpn  # the name in `detection` is taken
    return made(weights=None, weights_backbone=None, num_classes=num_classes, **SMALL)


def own_loop(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]) -> dict[str, Any]:
    """Run the page about own loops on two toys; gives what its code defines."""
    boxmend.synthesize("toys", images=2, format="voc")
    monkeypatch.setattr(detection, "fasterrcnn_resnet50_fpn", small_stock_model)
    code = "\n".join(blocks("own-loop.md"))
    torch.manual_seed(0)
    changed = with_changes(code, {"VOC2007:trainval": "toys:train", "epochs = 12": "epochs = 2"})
    names: dict[str, Any] = {}
    exec(with_changes(changed, changes), names)
    return names


def test_the_loop_of_ones_own_runs_on_torchvisions_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = own_loop(monkeypatch, {'method="mend", warm_up=0.25': "label_noise=0.9, warm_up=0.5"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(np.isfinite(float(line.split()[1])) for line in lines)
    refiner, record, dataset = names["refiner"], names["record"], names["dataset"]
    assert (refiner.step, refiner.epoch) == (2, 2)
    assert sorted(record.rows.tolist()) == list(range(len(dataset)))
    assert torch.isfinite(record.final_boxes).all()
    assert names["new_labels"][record.rows].tolist() == record.new_labels.tolist()
    # A network that has learnt nothing, and labels said to be wrong nearly always.
    assert record.new_labels.tolist() != record.old_labels.tolist()
    first = names["model"].backbone.body.conv1.weight
    assert first.grad is None or torch.isfinite(first.grad).all()


def test_the_loop_with_a_mender_runs_on_torchvisions_fcos(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.repair.mender.tiny_fcos import make_tiny_fcos

    def small_fcos(weights_backbone: str, num_classes: int, score_thresh: float) -> Any:
        assert weights_backbone == "DEFAULT"
        return make_tiny_fcos(num_classes, SIDE, score_thresh=score_thresh)

    boxmend.synthesize("toys", images=10, format="voc")
    monkeypatch.setattr(detection, "fcos_resnet50_fpn", small_fcos)
    code = "\n".join(blocks("mender.md"))
    changes = {"VOC2007:trainval": "toys:train", "epochs = 12": "epochs = 3"}
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # three epochs are too few to fit
        exec(with_changes(code, changes), names)
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert names["run"].is_finished
    assert names["mender"].num_updates == 3
    assert len(names["run"].read_metrics()) == 3
    assert names["update"].epoch == 2
