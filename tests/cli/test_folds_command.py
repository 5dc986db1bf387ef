"""boxmend folds: pairs of datasets, and the messages."""

import json
from pathlib import Path

import pytest

import boxmend
from boxmend.cli import run
from tests.cli.cli_answers import answer, hashes


def test_folds_are_written_and_reported(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes(toys)
    out = tmp_path / "folds"
    status, result = answer(capsys, "folds", f"{toys}:train", "-k", 3, "--seed", 2, "--out", out)
    assert status == 0
    assert hashes(toys) == before
    dataset = boxmend.load(f"{toys}:train")
    assert sum(result["test"]) == len(dataset.images)
    assert [a + b for a, b in zip(result["train"], result["test"], strict=True)] == [
        sum(result["test"])
    ] * 3
    assert (result["k"], result["seed"], result["format"]) == (3, 2, "coco")
    manifest = json.loads((out / "folds.json").read_text())
    assert sorted(manifest["folds"]) == sorted(dataset.images.file_names)
    assert manifest["data_sha256"]
    page = (out / "README.md").read_text()
    assert f"boxmend audit {toys}:train --predictions ." in page
    assert "for k in 0 1 2; do" in page
    assert "yolo detect" not in page  # which reads no COCO


def test_the_page_of_a_yolo_dataset_has_commands_for_its_trainers(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "folds"
    assert run(["convert", str(toys), "--to", "yolo", "--out", str(data)]) == 0
    assert run(["folds", str(data / "data.yaml"), "-k", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-3:][0].split() == ["fold", "train", "test"]
    assert f"{out / 'README.md'}" in printed.err
    assert 'data="$PWD/fold-$k/train/data.yaml"' in (out / "README.md").read_text()
    assert (out / "README.md").read_text().count(" exist_ok=True") == 2  # else names get numbers


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["-k", "1"], 2, "k is 1"),
        (["-k", "500"], 2, "500 folds need at least 500 images"),
        (["-k", "2", "--group-by", "("], 2, "no regular expression"),
        (["-k", "2", "--group-by", "folder"], 2, "groups of images, and there are 1"),
    ],
)
def test_folds_that_cannot_be_leave_nothing_behind(
    toys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    message: str,
) -> None:
    assert run(["folds", str(toys), *options, "--out", str(tmp_path / "folds")]) == status
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_not_touched(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run(["folds", str(toys), "--out", str(tmp_path)]) == 3
    assert "the folder is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
