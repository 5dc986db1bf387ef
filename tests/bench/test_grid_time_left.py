"""How long a grid will take, by the epochs that its cells have done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.bench.grids.time_left import Pace, seconds_left


def test_the_time_is_unknown_before_an_epoch_or_a_cell_is_done() -> None:
    assert seconds_left([], [Pace(5, 100.0)], [5, 5], 1) is None


def test_a_running_cell_uses_its_own_speed() -> None:
    # 3 of 12 epochs took 90 s, 30 s each; 10 s later 360 - 100 s are left, whatever others took.
    assert seconds_left([1.0], [Pace(12, 100.0, 3, 90.0)], [], 1) == pytest.approx(260)


def test_a_slow_cell_always_has_time_left() -> None:
    # Others took 2 s per epoch, so 10 s; after 50 s without an epoch there are still 4 whole ones.
    assert seconds_left([2.0], [Pace(5, 50.0)], [], 1) == pytest.approx(8)
    # Two epochs took 80 s, the third lasts for 200 s by now: two more of 40 s are left.
    assert seconds_left([2.0], [Pace(5, 280.0, 2, 80.0)], [], 1) == pytest.approx(80)


def test_the_time_is_unknown_once_all_epochs_are_done_and_the_rest_is_unknown() -> None:
    assert seconds_left([2.0], [Pace(5, 60.0, 5, 50.0)], [], 1) is None


def test_cells_that_wait_take_the_first_free_slot_and_as_many_epochs_as_they_have() -> None:
    # An epoch takes (3 + 5) / 2 = 4 s on average. Slots are free after 5 x 5 - 20 = 5 s, the rest
    # of 5 epochs, and after 0 s; the one with 10 epochs ends at 40 s, that with 5 at 5 + 20 s.
    running = [Pace(5, 20.0, 3, 15.0)]
    assert seconds_left([3.0], running, [10, 5], 2) == pytest.approx(40)


@given(
    st.lists(st.floats(0.1, 1e4), min_size=1, max_size=4),
    st.lists(
        st.builds(Pace, st.integers(1, 50), st.floats(0, 1e5), st.integers(0, 50)), max_size=4
    ),
    st.lists(st.integers(1, 50), max_size=6),
    st.integers(1, 4),
)
def test_more_cells_never_take_less_time(
    done: list[float], running: list[Pace], waiting: list[int], slots: int
) -> None:
    slots = max(slots, len(running))
    before = seconds_left(done, running, waiting, slots) or 0.0
    assert before >= 0
    assert (seconds_left(done, running, [*waiting, 5], slots) or 0.0) >= before
