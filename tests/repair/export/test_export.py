"""What holds for every target: the folder, the manifest, images, and what is refused."""

import json
import os
from math import nan
from pathlib import Path

import pytest

from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.repair.export import TARGETS, ExportOptions, export
from boxmend.runs.ledger import Judgement
from tests.fabricated_runs import run_on
from tests.repair.export.exported_runs import VISITS, Drawn, drawn_run, exported, json_of, seen

EVERY_TARGET = pytest.mark.parametrize("to", TARGETS)


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@EVERY_TARGET
def test_a_folder_holds_the_files_a_readme_and_a_manifest(tmp_path: Path, to: str) -> None:
    result = export(drawn_run(tmp_path), tmp_path / "new/out", to)
    assert set(result.files) == {path.name for path in (tmp_path / "new/out").iterdir()}
    assert {"README.md", "export.json"} < set(result.files)
    assert "3 annotations to review" in (tmp_path / "new/out/README.md").read_text()
    assert result.to_json() == {
        "out": str(tmp_path / "new/out"),
        "to": to,
        "files": list(result.files),
        "images": 2,
        "suspects": 3,
        "others": 3,
        "images_missing": 0,
        "images_left_out": 0,
        "fixes_not_exported": 0,
    }


@EVERY_TARGET
def test_the_manifest_lists_all_that_was_exported(tmp_path: Path, to: str) -> None:
    manifest = json_of(exported(tmp_path, to) / "export.json")
    dataset = load(tmp_path / "data/instances_train.json")
    assert manifest["data_sha256"] == fingerprint(dataset)
    assert (manifest["boxmend_export"], manifest["to"]) == (2, to)
    statuses = {
        one["annotation_id"]: one["status"]
        for image in manifest["images"]
        for one in image["annotations"]
    }
    assert [key for key, status in statuses.items() if status == "suspect"] == [10, 11, 13]
    assert sorted(statuses) == [10, 11, 12, 13, 14, 15]


@EVERY_TARGET
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, to: str) -> None:
    run = drawn_run(tmp_path)
    first, second = (
        bytes_in(export(run, tmp_path / name, to, most=3).out) for name in ("one", "two")
    )
    assert first == second


@EVERY_TARGET
def test_only_images_with_a_suspect_are_given(tmp_path: Path, to: str) -> None:
    result = export(drawn_run(tmp_path), tmp_path / "out", to, most=1)
    manifest = json_of(tmp_path / "out/export.json")
    assert [image["file_name"] for image in manifest["images"]] == ["b.png"]
    assert (result.num_images, result.num_suspects, result.num_others) == (1, 1, 2)


@EVERY_TARGET
def test_the_dataset_is_not_written(tmp_path: Path, to: str) -> None:
    run = drawn_run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    export(run, tmp_path / "out", to, options=ExportOptions(images_as="copy"))
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before


def test_asking_for_more_than_there_are_gives_all_that_are_known(tmp_path: Path) -> None:
    result = export(drawn_run(tmp_path), tmp_path / "out", "coco", most=10**6)
    assert result.num_suspects == 4


def test_an_output_that_is_there_is_left_alone(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="the folder is not empty"):
        export(run, tmp_path / "out", "coco")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("to", ["csv", "", "COCO"])
def test_an_unknown_target_is_named_with_the_known_ones(tmp_path: Path, to: str) -> None:
    with pytest.raises(UsageError, match="known are label-studio, cvat, fiftyone, coco"):
        export(tmp_path, tmp_path / "out", to)


@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("cvat", ExportOptions(image_prefix="http://x/"), "--image-prefix is for label-studio"),
        ("coco", ExportOptions(images_as="move"), "images_as must be one of link, copy, none"),
        ("cvat", ExportOptions(whole_images=False), "omit --no-whole-images"),
    ],
)
def test_options_that_a_target_has_no_use_for_are_refused(
    tmp_path: Path, to: str, options: ExportOptions, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export(tmp_path, tmp_path / "out", to, options=options)


@pytest.mark.parametrize("number", [0, -3])
def test_fewer_than_one_is_refused_before_anything_is_read(tmp_path: Path, number: int) -> None:
    with pytest.raises(UsageError, match="expected at least 1"):
        export(tmp_path / "nowhere", tmp_path / "out", "coco", most=number)


def test_a_run_without_changes_leaves_nothing_behind(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, visits=[seen(0), seen(1)])
    with pytest.raises(DataError, match="changed no annotation"):
        export(run, tmp_path / "out", "coco")
    assert not (tmp_path / "out").exists()


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    (run / "finished").unlink()
    with pytest.raises(DataError, match="the run is unfinished"):
        export(run, tmp_path / "out", "coco")


def test_annotations_that_were_edited_since_are_refused(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    path = tmp_path / "data/instances_train.json"
    path.write_text(path.read_text().replace('"bbox": [20, ', '"bbox": [21, '))
    with pytest.raises(DataError, match=r"not the data that .* was trained on"):
        export(run, tmp_path / "out", "coco")
    assert not (tmp_path / "out").exists()


def test_a_dataset_in_memory_is_taken(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    dataset = load(tmp_path / "data/instances_train.json")
    (tmp_path / "data/instances_train.json").unlink()
    assert export(run, tmp_path / "out", "coco", data=dataset).num_suspects == 3


@EVERY_TARGET
def test_missing_images_are_counted_and_do_no_harm_where_sizes_are_known(
    tmp_path: Path, to: str
) -> None:
    run = drawn_run(tmp_path, with_images=False)
    result = export(run, tmp_path / "out", to, options=ExportOptions(images_as="link"))
    assert result.num_images == len(result.missing) == 2
    assert not (tmp_path / "out/images").exists()


@EVERY_TARGET
def test_sizes_are_read_from_headers_where_the_dataset_has_none(tmp_path: Path, to: str) -> None:
    manifest = json_of(exported(tmp_path, to, Drawn(size=None)) / "export.json")
    assert [(image["width"], image["height"]) for image in manifest["images"]] == [(200, 100)] * 2


def test_an_image_of_unknown_size_is_left_out_and_named(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, Drawn(size=None))
    broken = tmp_path / "data/images/a.png"
    broken.write_bytes(b"no image")
    result = export(run, tmp_path / "out", "label-studio")
    assert result.left_out == (str(broken),)
    assert (result.num_images, result.num_suspects) == (1, 1)
    assert result.to_json()["images_left_out"] == 1


def test_without_any_size_there_is_nothing_to_hand_over(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, Drawn(size=None), with_images=False)
    with pytest.raises(DataError, match=r"a\.png.*size of this image.*all 2 images"):
        export(run, tmp_path / "out", "cvat")
    assert not (tmp_path / "out").exists()


def test_images_of_the_same_name_in_two_datasets_are_kept_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Drawn().write(tmp_path / name)
    addresses = [str(tmp_path / name / "instances_train.json") for name in ("one", "two")]
    visits = [*VISITS, *(seen(row, Judgement.DISCARDED, 5.0) for row in (6, 9))]
    run = run_on(load(*addresses), tmp_path / "run", addresses, visits)
    result = export(run, tmp_path / "out", "cvat", options=ExportOptions(images_as="copy"))
    names = [image["file_name"] for image in json_of(tmp_path / "out/export.json")["images"]]
    assert len(set(names)) == len(names) == result.num_images == 4
    assert all((tmp_path / "out/images" / name).is_file() for name in names)


@EVERY_TARGET
@pytest.mark.parametrize("format", ["voc", "yolo"])
def test_datasets_of_other_formats_are_exported_with_their_images(
    tmp_path: Path, to: str, format: str
) -> None:
    coco = load(Drawn().write(tmp_path))
    coco.save(tmp_path / "other", format=format, allow_lossy=True)
    (address,) = [tmp_path / "other"] if format == "voc" else (tmp_path / "other").glob("*.yaml")
    dataset = load(address)
    run = run_on(dataset, tmp_path / "run", [str(address)], VISITS)
    export(run, tmp_path / "out", to, options=ExportOptions(images_as="copy"))
    images = json_of(tmp_path / "out/export.json")["images"]
    assert len(images) == 2
    assert all((tmp_path / "out/images" / one["file_name"]).is_file() for one in images)
    ids = [one["annotation_id"] for image in images for one in image["annotations"]]
    assert ids == dataset.annotation_ids.tolist()


def test_difficult_objects_are_context_and_never_suspects(tmp_path: Path) -> None:
    dataset = load(Drawn().write(tmp_path))
    dataset.is_crowd[2] = False
    dataset.is_difficult[4] = True
    visits = [*VISITS[:3], seen(4, Judgement.RELABELLED, 9.0, label=0)]
    run = run_on(dataset, tmp_path / "run", ["unknown"], visits)
    export(run, tmp_path / "out", "coco", most=9, data=dataset)
    images = json_of(tmp_path / "out/export.json")["images"]
    statuses = {
        one["annotation_id"]: one["status"] for image in images for one in image["annotations"]
    }
    assert (statuses[14], statuses[12]) == ("ignored", "other")


def test_a_method_without_losses_has_reasons_without_doubts(tmp_path: Path) -> None:
    visits = [seen(1, Judgement.KEPT, nan, confidence=nan, box=(100, 20, 150, 60))]
    out = export(drawn_run(tmp_path, visits=visits), tmp_path / "out", "coco").out
    (entry,) = (
        annotation
        for annotation in json_of(out / "export.json")["images"][0]["annotations"]
        if annotation["status"] == "suspect"
    )
    assert entry["reason"] == (
        "label: truck kept in 1 of 1 visits; box: moved, IoU 0.80 with the annotated one"
    )
    assert entry["suspicion"] == 0.2
    assert {"doubt", "score"}.isdisjoint(entry)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = drawn_run(tmp_path)

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"the disk is full\); nothing was left"):
        export(run, tmp_path / "out", "coco")
    assert {one.name for one in tmp_path.iterdir()} == {"data", "run"}


def test_every_file_is_valid_utf8_json_or_xml(tmp_path: Path) -> None:
    for to in TARGETS:
        out = exported(tmp_path / to, to)
        for path in out.glob("*.json"):
            text = path.read_text("utf-8")
            assert "NaN" not in text
            assert json.loads(text)
