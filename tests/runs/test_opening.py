"""What an opened run settles: one row per annotation, worked out on paper from made-up ledgers."""

from math import exp, inf, nan
from pathlib import Path

import numpy as np
import pytest

from boxmend.data.formats import load
from boxmend.errors import DataError, UsageError
from boxmend.repair.apply import ApplySettings
from boxmend.repair.from_visits import changes_from_visits
from boxmend.runs.opening import OpenRun, open_run_with_history
from tests.fabricated_runs import (
    BOXES,
    DISCARDED,
    KEPT,
    RELABELLED,
    UNJUDGED,
    Visit,
    audit_run,
    drawn,
    finished_run,
)

VAN, TRUCK, BUS = range(3)  # annotations 0 to 3 are a van, a truck, a bus and a van


def made_run(folder: Path, visits: list[Visit], *, warm_up: float = 0.0) -> OpenRun:
    return open_run_with_history(
        finished_run(folder / "run", drawn(folder, "coco"), visits, warm_up=warm_up)
    )


def test_each_verdict_is_counted_and_visits_without_one_are_unjudged(tmp_path: Path) -> None:
    visits = [
        Visit(0, 0, RELABELLED, label=BUS, confidence=0.75),
        Visit(0, 1, DISCARDED),
        Visit(0, 2, KEPT, confidence=0.5),
    ]
    opened = made_run(tmp_path, visits)
    assert opened.settlement.verdicts.tolist() == [RELABELLED, DISCARDED, KEPT, UNJUDGED]
    assert opened.settlement.labels.tolist() == [BUS, TRUCK, BUS, VAN]
    assert opened.settlement.is_visited.tolist() == [True, True, True, False]
    assert opened.settlement.is_changed.tolist() == [True, True, False, False]
    np.testing.assert_array_equal(opened.settlement.confidences, [0.75, nan, 0.5, nan])


def test_a_moved_box_is_a_change_with_its_overlap(tmp_path: Path) -> None:
    # Annotation 0 is 20 x 40 at (10, 10); its lower half is 20 x 20: half of it.
    visits = [Visit(0, 0, UNJUDGED, box=(10, 30, 30, 50), confidence=0.5), Visit(0, 1, UNJUDGED)]
    opened = made_run(tmp_path, visits)
    assert opened.settlement.is_moved.tolist() == [True, False, False, False]
    assert opened.settlement.is_changed.tolist() == [True, False, False, False]
    assert opened.settlement.iou.tolist() == [0.5, 1, 1, 1]
    # Not judged: what confidence there is, is that in the object whose box moved.
    np.testing.assert_array_equal(opened.settlement.confidences, [0.5, nan, nan, nan])


def test_losses_are_the_mean_over_the_visits_that_settle(tmp_path: Path) -> None:
    # Six epochs: the last two judged visits count.
    losses = [9.0, 9.0, 9.0, 9.0, 1.0, 3.0]
    visits = [Visit(epoch, 0, loss=loss) for epoch, loss in enumerate(losses)]
    visits[-1:] = [Visit(5, 0, loss=3.0), Visit(5, 1, loss=4.0), Visit(5, 2, UNJUDGED, loss=5.0)]
    opened = made_run(tmp_path, visits)
    np.testing.assert_array_equal(opened.settlement.losses, [2, 4, nan, nan])
    assert opened.settlement.doubts[:2] == pytest.approx([1 - exp(-2), 1 - exp(-4)])
    assert np.isnan(opened.settlement.doubts[2:]).all()


def test_a_loss_that_is_no_number_is_left_out_and_no_older_one_takes_its_place(
    tmp_path: Path,
) -> None:
    losses = [9.0, 9.0, 9.0, 9.0, 1.0, nan]
    visits = [Visit(epoch, 0, loss=loss) for epoch, loss in enumerate(losses)]
    visits += [Visit(5, 1, loss=inf)]
    np.testing.assert_array_equal(made_run(tmp_path, visits).settlement.losses, [1, nan, nan, nan])


def test_evidence_is_that_of_the_last_visit(tmp_path: Path) -> None:
    visits = [
        Visit(0, 0, KEPT, threshold=1.0, num_candidates=2, matched=(1, 1, 9, 9)),
        Visit(1, 0, KEPT, threshold=inf, num_candidates=5, matched=(2, 2, 9, 9)),
        Visit(1, 1, UNJUDGED, threshold=3.0, num_candidates=7, matched=(3, 3, 9, 9)),
    ]
    opened = made_run(tmp_path, visits)
    np.testing.assert_array_equal(
        opened.settlement.thresholds, [inf, nan, nan, nan]
    )  # where it was judged
    assert opened.settlement.num_candidates.tolist() == [5, 7, 0, 0]
    assert opened.settlement.matched_boxes[:2].tolist() == [[2, 2, 9, 9], [3, 3, 9, 9]]
    assert opened.settlement.matched_boxes[2:].tolist() == [
        list(box) for box in BOXES[2:]
    ]  # as annotated


def test_warm_up_has_no_say(tmp_path: Path) -> None:
    visits = [
        Visit(0, 0, RELABELLED, label=BUS, loss=5.0, threshold=2.0, matched=(1, 1, 9, 9)),
        Visit(0, 1, KEPT, loss=5.0),
        Visit(1, 1, KEPT, loss=1.0),
    ]
    opened = made_run(tmp_path, visits, warm_up=0.5)
    assert opened.settlement.verdicts.tolist() == [UNJUDGED, KEPT, UNJUDGED, UNJUDGED]
    np.testing.assert_array_equal(opened.settlement.losses, [nan, 1, nan, nan])
    np.testing.assert_array_equal(opened.settlement.thresholds, [nan, 0, nan, nan])
    assert opened.settlement.matched_boxes[0].tolist() == list(BOXES[0])
    assert opened.settlement.num_candidates.tolist() == [0, 0, 0, 0]
    assert opened.settlement.is_visited.tolist() == [True, True, False, False]
    assert not opened.settlement.is_changed.any()


def test_changes_are_those_of_apply_by_default(tmp_path: Path) -> None:
    visits = [
        Visit(0, 0, RELABELLED, label=BUS, confidence=0.5),
        Visit(0, 1, KEPT, box=(41, 20, 62, 40), confidence=0.5),
        Visit(0, 2, DISCARDED),
    ]
    opened = made_run(tmp_path, visits)
    changes = changes_from_visits(opened.settlement)
    default = changes_from_visits(opened.settlement, ApplySettings())
    assert changes.rows.tolist() == default.rows.tolist() == [0, 1]  # unsure ones stay
    assert changes.is_relabelled.tolist() == [True, False]
    assert changes.is_moved.tolist() == [False, True]
    assert changes.reasons == default.reasons


def test_a_run_without_visits_has_an_account_too(tmp_path: Path) -> None:
    opened = made_run(tmp_path, [])
    assert opened.settlement.verdicts.tolist() == [UNJUDGED] * 4
    assert not opened.settlement.is_visited.any()
    assert not opened.settlement.is_changed.any()
    assert np.isnan(opened.settlement.losses).all()
    assert opened.settlement.iou.tolist() == [1] * 4


def test_moved_data_are_found_next_to_the_run_or_at_the_given_address(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = finished_run(tmp_path / "run", address, [Visit(0, 0)])
    Path(address).rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="the data of the run are gone"):
        open_run_with_history(run)
    there = str(tmp_path / "elsewhere")
    for data in (there, [there], load(there)):
        assert open_run_with_history(run, data).settlement.is_visited.tolist() == [
            True,
            False,
            False,
            False,
        ]


def test_an_unfinished_run_is_not_opened(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", drawn(tmp_path, "coco"), [Visit(0, 0)])
    (run / "finished").unlink()
    with pytest.raises(DataError, match="unfinished"):
        open_run_with_history(run)


def test_an_audit_of_predictions_is_not_opened_as_a_run_with_a_ledger(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), [])
    with pytest.raises(
        UsageError, match=r"has no ledger.*see the fixes of the audit by `boxmend review .*run`"
    ):
        open_run_with_history(run)
