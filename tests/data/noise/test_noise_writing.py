"""Noisy datasets on disk: usable as they are, with the truth and a record of the noise beside."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from boxmend import __version__
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, disturb, join_digests, read_truth, write_noisy
from boxmend.errors import OutputError

NOISE = NoiseSettings(
    labels="symmetric:0.4", boxes="uniform:0.4", missing=0.2, spurious=0.1, duplicate=0.3, seed=5
)
NO_IMAGES = WriteOptions(images_as="none", allow_lossy=True)
NAMES = ("car", "van", "truck")


def coco(folder: Path, name: str = "instances_train.json", n: int = 30) -> Path:
    """A COCO file of three images, n annotations with ids from 500 on, the first one a crowd."""
    images = [
        {"id": k, "file_name": f"{k}.jpg", "width": 640, "height": 480, "note": "kept"}
        for k in range(1, 4)
    ]
    annotations = [
        {
            "id": 500 + k,
            "image_id": 1 + k % 3,
            "category_id": 10 * (1 + k % 3),
            "bbox": [100.5 + k, 80.25, 60, 40.5],
            "area": 2430.0,
            "iscrowd": int(k == 0),
        }
        for k in range(n)
    ]
    categories = [{"id": 10 * (k + 1), "name": name} for k, name in enumerate(NAMES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def record(out: Path) -> Any:
    return json.loads((out / "noise.json").read_text())


@pytest.fixture
def clean(tmp_path: Path) -> Dataset:
    return load(coco(tmp_path / "clean"))


def convert(dataset: Dataset, out: Path, format: str) -> Dataset:
    """Write a dataset in another format and read it back."""
    folder = dataset.sources[0].path.parent
    for name in dataset.images.file_names:  # the reader of YOLO takes sizes from the images
        Image.new("L", (640, 480)).save(folder / name)
    load(folder, images=folder).save(out, format=format, allow_lossy=True)
    return load(out)


def test_the_noisy_dataset_is_read_back_with_the_ids_of_the_truth(
    tmp_path: Path, clean: Dataset
) -> None:
    noisy = disturb(clean, NOISE)
    saved = write_noisy(noisy, NOISE, tmp_path / "out", NO_IMAGES)
    assert saved.out == tmp_path / "out"
    back = load(tmp_path / "out")
    truth = read_truth(tmp_path / "out" / "truth.parquet")
    place = {id: row for row, id in enumerate(back.annotation_ids.tolist())}
    rows = [place[id] for id in truth.annotation_ids[~truth.is_missing].tolist()]
    assert sorted(rows) == list(range(len(back)))
    assert back.labels[rows].tolist() == noisy.dataset.labels.tolist()
    assert back.boxes[rows] == pytest.approx(noisy.dataset.boxes, abs=0.006)
    assert back.is_crowd.sum() == 1


@pytest.mark.parametrize("format", ["voc", "yolo"])
def test_the_truth_of_a_dataset_in_another_format_has_the_ids_of_that_format(
    tmp_path: Path, clean: Dataset, format: str
) -> None:
    clean = convert(clean, tmp_path / "converted", format)
    noisy = disturb(clean, NOISE)
    write_noisy(noisy, NOISE, tmp_path / "out", WriteOptions(allow_lossy=True))
    back = load(tmp_path / "out")
    truth = read_truth(tmp_path / "out" / "truth.parquet")
    place = {id: row for row, id in enumerate(back.annotation_ids.tolist())}
    rows = [place[id] for id in truth.annotation_ids[~truth.is_missing].tolist()]
    assert sorted(rows) == list(range(len(back)))
    names = [back.label_names[label] for label in back.labels[rows]]
    assert names == [clean.label_names[label] for label in noisy.dataset.labels]
    assert set(truth.source_ids[~truth.is_spurious].tolist()) == set(clean.annotation_ids.tolist())


def test_the_record_names_settings_counts_and_hashes(tmp_path: Path, clean: Dataset) -> None:
    out = tmp_path / "out"
    noisy = disturb(clean, NOISE)
    write_noisy(noisy, NOISE, out, NO_IMAGES)
    written = record(out)
    assert [*written] == [
        *("boxmend", "counts", "files", "label_names", "settings", "sha256", "digest")
    ]
    assert written["settings"] == {
        "labels": "symmetric:0.4",
        "boxes": "uniform:0.4",
        "missing": 0.2,
        "spurious": 0.1,
        "duplicate": 0.3,
        "subset": 1.0,
        "seed": 5,
        "clip": True,
    }
    assert written["counts"] == noisy.counts
    assert written["counts"]["eligible"] == 29
    assert (written["counts"]["missing"], written["counts"]["spurious"]) == (6, 3)
    assert written["counts"]["duplicate"] == 9
    assert written["counts"]["annotations_after"] == 30 - 6 + 3 + 9
    digest = hashlib.sha256((out / "instances_train.json").read_bytes()).hexdigest()
    assert written["files"] == {"instances_train.json": digest}
    assert written["sha256"] == digest
    assert written["label_names"] == list(NAMES)
    assert written["boxmend"] == __version__


def test_the_record_is_readable_and_contains_nothing_about_the_machine(
    tmp_path: Path, clean: Dataset
) -> None:
    matrix = tmp_path / "confusion.json"
    matrix.write_text('{"van": {"truck": 0.4}}')
    settings = NoiseSettings(labels=f"matrix:{matrix}")
    write_noisy(disturb(clean, settings), settings, tmp_path / "out", NO_IMAGES)
    text = (tmp_path / "out" / "noise.json").read_text()
    assert record(tmp_path / "out")["settings"]["labels"] == "matrix:confusion.json"
    assert str(tmp_path) not in text
    assert text.endswith("}\n")
    content, _, digest = text.rpartition(', "digest": ')
    assert content + "\n}" == json.dumps(json.loads(content + "}"), indent=2, sort_keys=True)
    assert digest.count("\n") == 1


def test_the_same_input_and_seed_give_the_same_bytes_in_every_file(tmp_path: Path) -> None:
    contents = []
    for k in ("one", "two"):
        clean = load(coco(tmp_path / k))
        write_noisy(disturb(clean, NOISE), NOISE, tmp_path / k / "out", NO_IMAGES)
        files = sorted(path for path in (tmp_path / k / "out").rglob("*") if path.is_file())
        contents.append([(path.name, path.read_bytes()) for path in files])
    assert [name for name, _ in contents[0]] == [
        "instances_train.json",
        "noise.json",
        "truth.parquet",
    ]
    assert contents[0] == contents[1]


def test_without_noise_the_annotation_file_is_identical(tmp_path: Path, clean: Dataset) -> None:
    settings = NoiseSettings()
    write_noisy(disturb(clean, settings), settings, tmp_path / "out", NO_IMAGES)
    source = (tmp_path / "clean" / "instances_train.json").read_bytes()
    assert (tmp_path / "out" / "instances_train.json").read_bytes() == source


def test_the_input_file_stays_as_it_is(tmp_path: Path, clean: Dataset) -> None:
    path = tmp_path / "clean" / "instances_train.json"
    before = path.read_bytes()
    write_noisy(disturb(clean, NOISE), NOISE, tmp_path / "out", NO_IMAGES)
    assert path.read_bytes() == before


def test_crowds_keep_their_bytes(tmp_path: Path, clean: Dataset) -> None:
    write_noisy(disturb(clean, NOISE), NOISE, tmp_path / "out", NO_IMAGES)
    texts = [
        json.loads((tmp_path / folder / "instances_train.json").read_text())["annotations"][0]
        for folder in ("clean", "out")
    ]
    assert texts[0] == texts[1]


def test_one_file_keeps_its_hash_and_several_are_hashed_like_a_listing_of_sha256sum() -> None:
    assert join_digests({"a.json": "77"}) == "77"
    listing = b"11  labels/a.txt\n22  labels/b.txt\n"
    expected = hashlib.sha256(listing).hexdigest()
    assert join_digests({"labels/b.txt": "22", "labels/a.txt": "11"}) == expected
    assert (
        join_digests({"b\udcff": "1", "a": "2"}) == hashlib.sha256(b"2  a\n1  b\xff\n").hexdigest()
    )


def test_the_fingerprint_covers_all_files_of_a_dataset_of_many(
    tmp_path: Path, clean: Dataset
) -> None:
    out = tmp_path / "out"
    clean = convert(clean, tmp_path / "converted", "yolo")
    saved = write_noisy(disturb(clean, NOISE), NOISE, out, NO_IMAGES)
    written = record(out)
    assert written["files"] == saved.files
    assert len(written["files"]) > 3
    for name, digest in written["files"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert written["sha256"] == join_digests(saved.files)


def test_ids_of_missing_and_spurious_annotations_are_null_in_the_file(
    tmp_path: Path, clean: Dataset
) -> None:
    write_noisy(disturb(clean, NOISE), NOISE, tmp_path / "out", NO_IMAGES)
    table = pq.read_table(tmp_path / "out" / "truth.parquet")
    assert (table["annotation_id"].null_count, table["source_id"].null_count) == (6, 3)
    assert table.num_rows == 30 + 3 + 9


def test_a_dataset_file_called_like_the_record_is_refused_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    clean = load(coco(tmp_path / "clean", "noise.json"))
    with pytest.raises(OutputError, match=r"noise\.json would be both .* rename"):
        write_noisy(disturb(clean, NOISE), NOISE, tmp_path / "out", NO_IMAGES)
    assert [path.name for path in tmp_path.iterdir()] == ["clean"]


def test_a_failure_leaves_no_files(
    tmp_path: Path, clean: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("boxmend.data.noise.writing.write_truth", full)
    with pytest.raises(OutputError, match="disk is full"):
        write_noisy(disturb(clean, NOISE), NOISE, tmp_path / "out", NO_IMAGES)
    assert [path.name for path in tmp_path.iterdir()] == ["clean"]
