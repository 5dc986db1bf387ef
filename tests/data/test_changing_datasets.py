"""Edits of a dataset while a command works on it are noticed before anything is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boxmend.auditing import completed, ledgers
from boxmend.auditing.audit import audit
from boxmend.auditing.folders import audit_predictions, audit_run
from boxmend.auditing.judging import judge_annotations
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.folds import FoldSettings
from boxmend.data.folds.writing import write_folds
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, disturb, write_noisy
from boxmend.errors import DataError
from boxmend.repair.apply import apply
from boxmend.repair.export import export
from tests.fabricated_runs import Visit, drawn, finished_run

FORMATS = ("coco", "voc", "yolo")
VISITS = [Visit(0, row, loss=0.1, threshold=1.0) for row in range(4)]


def sources(folder: Path) -> list[Path]:
    """Return the files with annotations, names or lists."""
    return sorted(
        path for path in folder.rglob("*") if path.suffix in {".json", ".xml", ".txt", ".yaml"}
    )


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_source_file_counts(format: str, tmp_path: Path) -> None:
    address = drawn(tmp_path, format)
    dataset = load(address)
    ensure_unchanged(dataset)
    files = sources(Path(address))
    assert len(files) >= {"coco": 1, "voc": 3, "yolo": 3}[format]
    for path in files:
        before = path.read_bytes()
        edit(path)
        with pytest.raises(DataError, match=f"{path.name}: changed after"):
            ensure_unchanged(dataset)
        path.write_bytes(before)
        ensure_unchanged(dataset)


def test_a_label_file_that_appears_and_a_list_of_images_count(tmp_path: Path) -> None:
    folder = Path(drawn(tmp_path, "yolo"))
    label = next(folder.rglob("a.txt"))
    content = label.read_bytes()
    label.unlink()
    images = sorted(path for path in folder.rglob("*.png"))
    (folder / "train.txt").write_text("\n".join(map(str, images)))
    text = (folder / "data.yaml").read_text().replace("images/train", "train.txt")
    (folder / "data.yaml").write_text(text)
    dataset = load(folder)
    ensure_unchanged(dataset)
    label.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.txt: changed"):
        ensure_unchanged(dataset)
    label.unlink()
    edit(folder / "train.txt")
    with pytest.raises(DataError, match=r"train\.txt: changed"):
        ensure_unchanged(dataset)


@pytest.mark.parametrize("format", FORMATS)
def test_a_dataset_of_which_a_part_is_gone_counts_as_edited(format: str, tmp_path: Path) -> None:
    folder = Path(drawn(tmp_path, format))
    dataset = load(folder)
    if format != "coco":  # which is a single file
        sources(folder)[0].unlink()
        with pytest.raises(DataError, match="changed after"):
            ensure_unchanged(dataset)
    for path in sources(folder):
        path.unlink()
    ensure_unchanged(dataset)
    dataset.save(tmp_path / "out")  # as it was read
    assert len(load(tmp_path / "out")) == len(dataset)


def save_dataset(dataset: Dataset, folder: Path) -> None:
    dataset.save(folder / "out")


def convert_dataset(dataset: Dataset, folder: Path) -> None:
    dataset.save(folder / "out", format="voc" if dataset.sources[0].format != "voc" else "yolo")


def add_noise(dataset: Dataset, folder: Path) -> None:
    settings = NoiseSettings(labels="symmetric:0.5")
    write_noisy(disturb(dataset, settings), settings, folder / "out", WriteOptions())


def assign_folds(dataset: Dataset, folder: Path) -> None:
    write_folds(dataset, folder / "out", FoldSettings(k=2))


def apply_fixes(dataset: Dataset, folder: Path) -> None:
    apply(folder / "run", folder / "out", data=dataset)


def export_run(dataset: Dataset, folder: Path) -> None:
    export(folder / "run", folder / "out", "coco", most=2, data=dataset)


def run_audit(dataset: Dataset, folder: Path) -> None:
    audit_predictions(dataset, [], [predictions(folder)], folder / "out")


def predictions(folder: Path) -> Path:
    path = folder / "predictions.json"
    box = {"image_id": "a", "category_id": "van", "bbox": [10, 10, 20, 40], "score": 0.9}
    path.write_text(json.dumps([box]))
    return path


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "write",
    [save_dataset, convert_dataset, add_noise, assign_folds, apply_fixes, export_run, run_audit],
)
def test_nothing_is_written_about_a_dataset_that_changed(
    write: Callable[[Dataset, Path], None], format: str, tmp_path: Path
) -> None:
    address = drawn(tmp_path, format)
    finished_run(tmp_path / "run", address, VISITS)
    dataset = load(address)
    last = sources(Path(address))[-1]
    before = last.read_bytes()
    edit(last)
    with pytest.raises(DataError, match=rf"{last.name}: changed after .*nothing was written"):
        write(dataset, tmp_path)
    assert not (tmp_path / "out").exists()
    last.write_bytes(before)
    write(dataset, tmp_path)
    assert any((tmp_path / "out").iterdir())


def test_an_audit_of_a_run_writes_nothing_if_the_dataset_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = drawn(tmp_path, "coco")
    run = finished_run(tmp_path / "run", address, VISITS)
    before = sorted(run.rglob("*"))
    (path,) = sources(Path(address))

    def judge_and_edit(*arguments: Any) -> Any:
        edit(path)
        return judge_annotations(*arguments)

    monkeypatch.setattr(ledgers, "judge_annotations", judge_and_edit)
    with pytest.raises(DataError, match=f"{path.name}: changed after"):
        audit_run(run)
    assert sorted(run.rglob("*")) == before


def test_an_audit_writes_nothing_if_the_predictions_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = load(drawn(tmp_path, "voc"))
    path = predictions(tmp_path)

    def audit_and_edit(*arguments: Any) -> Any:
        edit(path)
        return audit(*arguments)

    monkeypatch.setattr(completed, "audit", audit_and_edit)
    with pytest.raises(DataError, match=r"predictions\.json: changed after"):
        audit_predictions(dataset, [], [path], tmp_path / "out")
    assert not (tmp_path / "out").exists()
