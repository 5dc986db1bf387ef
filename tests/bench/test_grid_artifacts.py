"""What a cell leaves to be brought elsewhere: figures and a picture, small, for better or worse."""

import io
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from boxmend.bench.grids import artifacts
from boxmend.bench.grids.artifacts import (
    MAX_FOLDER_BYTES,
    NUM_SHOWN_IMAGES,
    choose_images,
    draw_before_and_after,
    write_artifacts,
)
from boxmend.bench.grids.cell_process import CellStatus, run_cell
from boxmend.bench.grids.jobs import read_job, read_result
from boxmend.bench.grids.planning import Plan
from boxmend.repair.changes import Changes
from boxmend.runs.opening import open_run_with_history
from boxmend.scoring.corrections import known_truth
from boxmend.web.report.record import RunRecord
from tests.bench.grid_worlds import ready


@pytest.fixture(scope="module")
def lived(toys: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A grid of one cell that was run to its end in this process."""
    plan = ready(toys, tmp_path_factory.mktemp("grid"), keep_weights=True)
    assert run_cell(plan.folder(plan.cells[0])) is CellStatus.DONE
    return plan


@pytest.fixture
def record(lived: Plan) -> RunRecord:
    """The same, as figures are drawn from it."""
    folder = lived.folder(lived.cells[0])
    opened = open_run_with_history(folder / "run")
    truth = known_truth(lived.root / "noise" / "label40-box40-0", opened.dataset)
    return RunRecord(folder.name, opened, opened.run.read_metrics(), truth)


def test_a_scored_cell_leaves_figures_and_is_small(lived: Plan) -> None:
    kept = lived.folder(lived.cells[0]) / "artifacts"
    files = {path.name: path.stat().st_size for path in kept.iterdir()}
    assert {"losses.svg", "losses.csv"} <= set(files)
    assert sum(files.values()) <= MAX_FOLDER_BYTES
    text = (kept / "losses.csv").read_text()
    assert "right" in text
    assert "wrong" in text
    assert (kept / "losses.svg").read_text().endswith("</svg>\n")
    assert not (kept.parent / ".artifacts.new").exists()


def moved(record: RunRecord, rows: list[int]) -> Changes:
    """Changes that move the boxes of some annotations by ten pixels, and nothing else."""
    at, dataset = np.asarray(rows, np.int64), record.opened.dataset
    return replace(record.changes, rows=at, labels=dataset.labels[at], boxes=dataset.boxes[at] + 10)


def test_the_picture_has_two_rows_of_the_same_images(record: RunRecord) -> None:
    assert record.truth is not None
    rows = choose_images(record.opened, record.truth)
    assert 0 < len(rows) <= NUM_SHOWN_IMAGES
    first = int(np.flatnonzero(record.opened.dataset.image_rows == rows[0])[0])
    content = draw_before_and_after(record.opened, moved(record, [first]), record.truth)
    assert content is not None
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.format == "JPEG"
        width, height = picture.size
        pixels = np.asarray(picture.convert("RGB"), np.int16)
    side = artifacts.LONG_SIDE_PIXELS + 6
    assert (width, height) == (len(rows) * side + 6, 2 * side + 6)
    apart = np.abs(pixels[6:side] - pixels[side + 6 : 2 * side]).mean(axis=(0, 2))
    by_image = [float(apart[6 + at * side : (at + 1) * side].mean()) for at in range(len(rows))]
    assert by_image[0] > 1.3 * max(by_image[1:], default=0)  # the moved box; the rest is JPEG's


def test_images_are_chosen_by_what_was_given(record: RunRecord) -> None:
    assert record.truth is not None
    dataset, truth = record.opened.dataset, record.truth
    rows = choose_images(record.opened, truth)
    for row in rows:
        of_image = dataset.image_rows == row
        assert 2 <= of_image.sum() <= 6
        assert (dataset.labels[of_image] != truth.labels[of_image]).any()


def test_the_first_images_with_a_wrong_label_and_few_annotations_are_taken() -> None:
    counts = [2, 2, 1, 7, *[3] * 6]  # annotations of ten images
    image_rows = np.repeat(np.arange(10), counts)
    true = np.zeros(len(image_rows), np.int64)
    labels = np.where(image_rows > 0, 1, 0)  # wrong in all images but the first
    record: Any = SimpleNamespace(
        dataset=SimpleNamespace(images=range(10), image_rows=image_rows, labels=labels)
    )
    truth: Any = SimpleNamespace(labels=true, is_spurious=np.zeros(len(true), np.bool_))
    assert choose_images(record, truth) == [1, 4, 5, 6, 7]
    record.dataset.labels = true  # clean labels: the first images with few annotations
    assert choose_images(record, truth) == [0, 1, 4, 5, 6]


def test_where_nothing_was_changed_there_is_no_picture(record: RunRecord) -> None:
    assert record.truth is not None
    assert draw_before_and_after(record.opened, moved(record, []), record.truth) is None


def test_a_picture_that_is_too_large_is_made_coarser_or_left_out(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert record.truth is not None
    opened, changes = record.opened, moved(record, [0])
    whole = draw_before_and_after(opened, changes, record.truth)
    assert whole is not None
    monkeypatch.setattr(artifacts, "MAX_PICTURE_BYTES", len(whole) - 1)
    smaller = draw_before_and_after(opened, changes, record.truth)
    assert smaller is not None
    assert len(smaller) < len(whole)
    monkeypatch.setattr(artifacts, "MAX_PICTURE_BYTES", 10)
    assert draw_before_and_after(opened, changes, record.truth) is None


def test_an_earlier_folder_is_replaced_whole(record: RunRecord, tmp_path: Path) -> None:
    kept = tmp_path / "artifacts"
    kept.mkdir()
    (kept / "old.txt").write_text("old")
    written = write_artifacts(kept, record)
    assert "old.txt" not in {path.name for path in kept.iterdir()}
    assert set(written) == set(kept.iterdir())


def broken(*arguments: Any, **more: Any) -> bytes:
    raise OSError("no such image")


def test_what_goes_wrong_with_a_picture_costs_no_result(
    lived: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lived.folder(lived.cells[0])
    shutil.rmtree(folder / "artifacts")
    (folder / "result.json").unlink()
    monkeypatch.setattr(artifacts, "draw_before_and_after", broken)
    assert run_cell(folder) is CellStatus.DONE
    assert "no artifacts (OSError: no such image)" in capsys.readouterr().err
    assert not (folder / "artifacts").exists()
    assert not (folder / ".artifacts.new").exists()
    assert read_result(folder) is not None


def test_cells_of_seed_0_keep_artifacts_by_default(toys: Path, tmp_path: Path) -> None:
    def kept(**arguments: Any) -> list[bool]:
        only = ("label40-box40-mend-?",)
        plan = ready(toys, tmp_path / str(arguments), only=only, seeds=(0, 1), **arguments)
        return [read_job(plan.folder(cell)).keep_figures for cell in plan.cells]

    assert kept() == [True, False]
    assert kept(keep_figures=True) == [True, True]
    assert kept(keep_figures=False) == [False, False]
