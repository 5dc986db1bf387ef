"""The history of a run: what its ledger says, by rows of its dataset."""

from math import inf, nan
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boxmend.data.formats import load
from boxmend.errors import DataError
from boxmend.runs.folder import open_run
from boxmend.runs.history import SETTLING_COLUMNS, History, read_history
from tests.fabricated_runs import DISCARDED, KEPT, RELABELLED, UNJUDGED, Visit, drawn, finished_run

VISITS = [
    Visit(0, 2, UNJUDGED, loss=nan, threshold=inf),
    Visit(0, 0, KEPT, confidence=0.25, loss=0.5, threshold=1.5, num_candidates=3),
    Visit(1, 0, RELABELLED, label=2, confidence=0.75, box=(1, 2, 3, 4), matched=(5, 6, 7, 8)),
    Visit(1, 3, DISCARDED, label=-1, is_kept=False),
    Visit(1, 0, KEPT),
]


def read(folder: Path, format: str = "coco", visits: list[Visit] = VISITS, **how: float) -> History:
    """The history of a finished run with these visits."""
    address = drawn(folder, format)
    run = finished_run(folder / "run", address, visits, **how)  # type: ignore[arg-type]
    return read_history(open_run(run), load(address))


@pytest.mark.parametrize("format", ["coco", "voc"])  # ids are integers, and texts
@pytest.mark.parametrize("rows_per_part", [1, 1000])
def test_every_column_of_the_ledger_is_there(
    tmp_path: Path, format: str, rows_per_part: int
) -> None:
    history = read(tmp_path, format, rows_per_part=rows_per_part)
    assert len(history) == 5
    assert history.rows.tolist() == [2, 0, 0, 3, 0]
    assert history.epochs.tolist() == [0, 0, 1, 1, 1]
    assert history.steps.tolist() == [0, 0, 10, 10, 10]  # ten steps an epoch
    assert history.verdicts.tolist() == [UNJUDGED, KEPT, RELABELLED, DISCARDED, KEPT]
    van, bus = (2, 0) if format == "voc" else (0, 2)  # VOC's labels are in alphabetical order
    assert history.labels.tolist() == [bus, van, 2, -1, van]
    np.testing.assert_array_equal(history.losses, [nan, 0.5, 0, 0, 0])
    np.testing.assert_array_equal(history.thresholds, [inf, 1.5, 0, 0, 0])
    np.testing.assert_array_equal(history.confidences, [nan, 0.25, 0.75, nan, nan])
    assert history.num_candidates.tolist() == [0, 3, 0, 0, 0]
    assert history.matched_boxes[2].tolist() == [5, 6, 7, 8]
    assert history.final_boxes[2].tolist() == [1, 2, 3, 4]
    assert history.final_boxes[1].tolist() == [10, 10, 30, 50]  # as annotated
    assert history.is_kept.tolist() == [True, True, True, False, True]
    assert history.num_epochs == 2


def test_warm_up_is_by_steps(tmp_path: Path) -> None:
    history = read(tmp_path, warm_up=0.5)  # half of 20 steps: the first epoch
    assert history.is_warm_up.tolist() == [True, True, False, False, False]
    assert history.is_judged.tolist() == [False, False, True, True, True]


def test_the_last_of_several_visits_is_found_among_those_asked_for(tmp_path: Path) -> None:
    history = read(tmp_path)
    assert history.last(np.ones(5, np.bool_), 4).tolist() == [4, -1, 0, 3]
    assert history.last(history.verdicts == RELABELLED, 4).tolist() == [2, -1, -1, -1]
    assert history.last(np.zeros(5, np.bool_), 4).tolist() == [-1] * 4


def test_the_columns_for_settling_are_the_same_alone(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = open_run(finished_run(tmp_path / "run", address, VISITS, warm_up=0.5))
    dataset = load(address)
    whole, part = read_history(run, dataset), read_history(run, dataset, SETTLING_COLUMNS)
    assert whole.num_epochs == part.num_epochs == 2
    for name in ("rows", "verdicts", "labels", "confidences", "final_boxes", "is_kept"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(part, name))
    assert whole.is_warm_up.tolist() == part.is_warm_up.tolist()
    with pytest.raises(KeyError):
        _ = part.losses


def test_an_empty_ledger_is_an_empty_history(tmp_path: Path) -> None:
    history = read(tmp_path, visits=[])
    assert len(history) == history.num_epochs == 0
    assert history.final_boxes.shape == history.matched_boxes.shape == (0, 4)
    assert history.last(history.is_judged, 2).tolist() == [-1, -1]


def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = finished_run(tmp_path / "run", address, VISITS, rows_per_part=2)
    max((run / "ledger").glob("*.parquet")).unlink()
    with pytest.raises(DataError, match="4 entries, but the run wrote 5"):
        read_history(open_run(run), load(address))


def test_a_visit_without_an_annotation_is_refused(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = finished_run(tmp_path / "run", address, VISITS)
    (part,) = (run / "ledger").glob("*.parquet")
    table = pq.read_table(part)
    at = table.schema.get_field_index("annotation_id")
    field = table.schema.field(at).with_nullable(True)
    ids = pa.array([None, *table["annotation_id"].to_pylist()[1:]], field.type)
    pq.write_table(table.set_column(at, field, ids), part, write_page_checksum=True)
    with pytest.raises(DataError, match="visits without an annotation"):
        read_history(open_run(run), load(address))


def test_a_label_that_the_dataset_does_not_have_is_of_another_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="labels beyond the 3"):
        read(tmp_path, visits=[Visit(0, 0, RELABELLED, label=3)])
