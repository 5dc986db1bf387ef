"""Folds on disk: pairs of datasets, the manifest, and predictions in their folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boxmend
from boxmend.auditing.predictions import mark_seen_in_training, read_predictions
from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.data.folds import FoldSettings, read_manifest, write_folds
from boxmend.data.formats.writing import WriteOptions
from boxmend.errors import DataError, UsageError

K = 3


@pytest.fixture(params=["coco", "voc", "yolo"])
def data(request: pytest.FixtureRequest, toys: Path, tmp_path: Path) -> Path:
    """Return the drawn dataset in each format."""
    if request.param == "coco":
        return toys
    out = tmp_path / "data"
    assert run(["convert", str(toys), "--to", request.param, "--out", str(out)]) == 0
    return out


def make_predictions(dataset: Dataset, names: set[str]) -> list[dict[str, Any]]:
    """Results that find every annotation of these images."""
    return [
        {
            "file_name": dataset.images.file_names[int(image)],
            "category_name": dataset.label_names[int(label)],
            "bbox": [float(x1), float(y1), float(x2 - x1), float(y2 - y1)],
            "score": 0.9,
        }
        for image, label, (x1, y1, x2, y2) in zip(
            dataset.image_rows, dataset.labels, dataset.boxes, strict=True
        )
        if dataset.images.file_names[int(image)] in names
    ]


def test_test_parts_have_each_image_once_and_train_parts_the_others(
    data: Path, tmp_path: Path
) -> None:
    dataset = boxmend.load(data)
    out = tmp_path / "folds"
    written = write_folds(dataset, out, FoldSettings(K))
    seen: list[str] = []
    for fold in range(K):
        parts = {part: boxmend.load(out / f"fold-{fold}" / part) for part in ("train", "test")}
        names = {part: set(one.images.file_names) for part, one in parts.items()}
        assert names["train"].isdisjoint(names["test"])
        assert names["train"] | names["test"] == set(dataset.images.file_names)
        assert (len(names["train"]), len(names["test"])) == (
            written.train[fold],
            written.test[fold],
        )
        assert sum(map(len, parts.values())) == len(dataset)
        assert boxmend.check(parts["test"]) == []
        assert all(Path(path).is_file() for path in parts["train"].images.paths)
        seen += parts["test"].images.file_names
    assert sorted(seen) == sorted(dataset.images.file_names)
    manifest = read_manifest(out, dataset)
    test = boxmend.load(out / "fold-1" / "test").images.file_names
    own = dict(zip(dataset.images.file_names, manifest.folds.tolist(), strict=True))
    assert {own[name] for name in test} == {1}


def test_a_trainer_of_yolo_sees_all_images_of_a_part(toys: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run(["convert", str(toys), "--to", "yolo", "--out", str(data)]) == 0
    dataset = boxmend.load(data)
    assert set(dataset.images.splits) == {"train", "val"}
    write_folds(dataset, tmp_path / "folds", FoldSettings(K))
    for part, assign_folds in (("train", "train"), ("test", "val")):
        whole = tmp_path / "folds" / "fold-0" / part
        assert len(boxmend.load(f"{whole}:{assign_folds}").images) == len(
            boxmend.load(whole).images
        )
        label_file = next((whole / "labels" / assign_folds).iterdir())
        source = next(data.rglob(f"labels/*/{label_file.name}"))
        assert label_file.read_bytes() == source.read_bytes()


def test_same_images_and_seed_give_the_same_bytes(toys: Path, tmp_path: Path) -> None:
    dataset = boxmend.load(toys)
    for name in ("a", "b"):
        write_folds(dataset, tmp_path / name, FoldSettings(K, 4), WriteOptions(images_as="none"))
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.json"))
    assert len(files) >= 2 * K + 1
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_predictions_beside_the_folds_are_joined_and_know_their_fold(
    toys: Path, tmp_path: Path
) -> None:
    dataset = boxmend.load(toys)
    out = tmp_path / "folds"
    write_folds(dataset, out, FoldSettings(K), WriteOptions(images_as="none"))
    manifest = read_manifest(out, dataset)
    names = np.array(dataset.images.file_names)
    for fold in range(K):
        own = set(names[manifest.folds == fold].tolist())
        place = out / f"fold-{fold}" / "predictions.json"
        place.write_text(json.dumps(make_predictions(dataset, own)))
    predictions = read_predictions([out], dataset)
    assert len(predictions) == len(dataset)
    assert predictions.folds.tolist() == manifest.folds[predictions.image_rows].tolist()
    assert predictions.manifest is not None
    assert not mark_seen_in_training(predictions, predictions.manifest).any()
    one_by_one = [out / f"fold-{fold}" / "predictions.json" for fold in (2, 0, 1)]
    assert read_predictions(one_by_one, dataset).folds.tolist() == predictions.folds.tolist()


def test_predictions_on_training_images_are_counted(toys: Path, tmp_path: Path) -> None:
    dataset = boxmend.load(toys)
    out = tmp_path / "folds"
    write_folds(dataset, out, FoldSettings(2), WriteOptions(images_as="none"))
    every = make_predictions(dataset, set(dataset.images.file_names))
    for fold in range(2):
        (out / f"fold-{fold}" / "predictions.json").write_text(json.dumps(every))
    predictions = read_predictions([out], dataset)
    manifest = read_manifest(out, dataset)
    seen = mark_seen_in_training(predictions, manifest)
    assert seen.sum() == len(dataset)  # each annotation was found twice, once by who had seen it
    assert (predictions.folds[seen] != manifest.folds[predictions.image_rows[seen]]).all()
    number = f"{len(dataset):,} of {2 * len(dataset):,} detections"
    warning = f"WARNING: {number} are in images that their detector was trained on"
    assert any(note.startswith(warning) for note in predictions.notes)


def test_folds_without_predictions_are_named(toys: Path, tmp_path: Path) -> None:
    dataset = boxmend.load(toys)
    out = tmp_path / "folds"
    write_folds(dataset, out, FoldSettings(K), WriteOptions(images_as="none"))
    labels = out / "fold-1" / "labels"
    labels.mkdir()
    (labels / "000001.txt").write_text("0 0.5 0.5 0.1 0.1 0.9\n")
    with pytest.raises(DataError) as caught:
        read_predictions([out], dataset)
    message = str(caught.value)
    assert "2 of 3 folds have no predictions" in message
    assert "fold-0/predictions.json" in message
    assert "fold-2/predictions.json" in message
    assert "fold-1" not in message


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"k": 2, "folds": {"000001.png": 7}, "data_sha256": ""}',
        '{"k": 2, "folds": {"000001.png": 2}, "data_sha256": ""}',
        '{"k": 2, "folds": {"000001.png": -1}, "data_sha256": ""}',
        '{"k": 1e9, "folds": {}, "data_sha256": ""}',
        '{"k": 2, "folds": {"000001.png": true}, "data_sha256": ""}',
        '{"k": 2, "folds": {"elsewhere.png": 1}, "data_sha256": ""}',
    ],
)
def test_a_damaged_manifest_is_reported(toys: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "folds.json").write_text(content)
    with pytest.raises(DataError, match=r"folds\.json: "):
        read_manifest(tmp_path, boxmend.load(toys))


def test_no_manifest_is_reported(toys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; `boxmend folds` writes one"):
        read_manifest(tmp_path, boxmend.load(toys))
