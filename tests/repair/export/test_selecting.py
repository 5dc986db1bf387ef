"""Which annotations are chosen, and in which order."""

from dataclasses import replace
from math import log, nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.errors import DataError, UsageError
from boxmend.repair.export.selecting import select_changed, select_most_doubtful, suspicions
from boxmend.runs.ledger import Judgement
from boxmend.runs.opening import OpenRun, open_run_with_history
from tests.repair.export.exported_runs import VISITS, drawn_run, seen


@pytest.fixture
def open_run(tmp_path: Path) -> OpenRun:
    return open_run_with_history(drawn_run(tmp_path))


def test_suspicion_is_the_doubt_or_the_distance_whichever_is_larger(open_run: OpenRun) -> None:
    # 1 - exp(-log 4) = 0.75; doubt 0 but 1 - 1600/2000 = 0.2; a crowd; 1 - 1/10; 0; not visited.
    np.testing.assert_allclose(suspicions(open_run), [0.75, 0.2, nan, 0.9, 0.0, nan], atol=1e-6)


def test_the_larger_of_the_two_counts_where_both_speak(tmp_path: Path) -> None:
    # IoU of (20, 10, 80, 50) with (20, 10, 50, 50) is one half.
    visits = [seen(0, loss=log(4), box=(20, 10, 50, 50)), seen(1, loss=log(1.25))]
    suspicion = suspicions(open_run_with_history(drawn_run(tmp_path, visits=visits)))
    np.testing.assert_allclose(suspicion[:2], [0.75, 0.2], atol=1e-6)


def test_changes_are_relabelled_moved_and_unsure_in_the_order_of_the_dataset(
    open_run: OpenRun,
) -> None:
    assert select_changed(open_run).tolist() == [0, 1, 3]


def test_the_most_doubtful_come_highest_first(open_run: OpenRun) -> None:
    assert select_most_doubtful(open_run, 1).tolist() == [3]
    assert select_most_doubtful(open_run, 3).tolist() == [3, 0, 1]


def test_no_more_than_are_known_are_chosen_however_many_are_asked_for(open_run: OpenRun) -> None:
    assert select_most_doubtful(open_run, 10**12).tolist() == [3, 0, 1, 4]


def test_of_equal_ones_the_first_in_the_dataset_goes_first(tmp_path: Path) -> None:
    visits = [seen(row, loss=log(2)) for row in (5, 3, 0, 4)]
    opened = open_run_with_history(drawn_run(tmp_path, visits=visits))
    assert select_most_doubtful(opened, 3).tolist() == [0, 3, 4]


@pytest.mark.parametrize("number", [0, -1, -(10**9)])
def test_fewer_than_one_is_wrong_usage(open_run: OpenRun, number: int) -> None:
    with pytest.raises(UsageError, match=f"--most is {number}; expected at least 1"):
        select_most_doubtful(open_run, number)


def test_an_unjudged_annotation_counts_once_its_box_moved(tmp_path: Path) -> None:
    visits = [
        seen(0, Judgement.UNJUDGED, box=(20, 10, 50, 50)),
        seen(1, Judgement.UNJUDGED, loss=log(100)),
    ]
    opened = open_run_with_history(drawn_run(tmp_path, visits=visits))
    assert select_most_doubtful(opened, 5).tolist() == [0]
    np.testing.assert_allclose(suspicions(opened)[:2], [0.5, nan])


def test_a_run_that_judges_nothing_has_no_doubt_to_hand_over(tmp_path: Path) -> None:
    visits = [seen(row, Judgement.UNJUDGED, loss=nan) for row in (0, 1, 3)]
    opened = open_run_with_history(drawn_run(tmp_path, visits=visits))
    for select in (select_changed, lambda opened: select_most_doubtful(opened, 5)):
        with pytest.raises(DataError, match="judged no label and moved no box"):
            select(opened)


def test_a_run_that_changed_nothing_says_so_and_what_to_do(tmp_path: Path) -> None:
    opened = open_run_with_history(drawn_run(tmp_path, visits=[seen(0), seen(4)]))
    with pytest.raises(DataError, match=r"changed no annotation.*--most N"):
        select_changed(opened)


def test_a_crowd_is_never_chosen_even_if_a_ledger_tells_of_it(tmp_path: Path) -> None:
    visits = [*VISITS[:2], seen(2, Judgement.RELABELLED, log(50), label=0), *VISITS[2:]]
    opened = open_run_with_history(drawn_run(tmp_path, visits=visits))
    assert 2 not in select_changed(opened).tolist()
    assert 2 not in select_most_doubtful(opened, 10).tolist()


@pytest.fixture(scope="module")
def any_run(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    return open_run_with_history(drawn_run(tmp_path_factory.mktemp("any")))


SHARES = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # few, so that there are ties


@settings(deadline=None)
@given(
    losses=st.lists(st.sampled_from([0.0, 0.3, 2.0, nan]), min_size=6, max_size=6),
    iou=st.lists(SHARES, min_size=6, max_size=6),
    flags=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=6, max_size=6),
    number=st.integers(1, 8),
)
def test_selection_is_ordered_complete_and_the_same_each_time(
    any_run: OpenRun,
    losses: list[float],
    iou: list[float],
    flags: list[tuple[bool, bool]],
    number: int,
) -> None:
    is_moved = np.array([moved for moved, _ in flags])
    settlement = replace(any_run.settlement, num_moved=is_moved.astype(np.int64))
    vars(settlement).update(  # in the place of what would be computed
        losses=np.array(losses),
        iou=np.where(is_moved, iou, 1.0),
        is_visited=np.array([visited for _, visited in flags]),
    )
    opened = replace(any_run)
    vars(opened)["settlement"] = settlement
    suspicion = suspicions(opened)
    known = np.flatnonzero(~np.isnan(suspicion)).tolist()
    assert all(opened.settlement.is_visited[row] and row != 2 for row in known)
    if not known:
        with pytest.raises(DataError):
            select_most_doubtful(opened, number)
        return
    rows = select_most_doubtful(opened, number).tolist()
    assert rows == sorted(known, key=lambda row: (-suspicion[row], row))[:number]
    assert rows == select_most_doubtful(opened, number).tolist()
    assert len(rows) == min(number, len(known))
    assert select_most_doubtful(opened, number + 1).tolist()[: len(rows)] == rows
