"""Times of blocks by turns, medians, and rows that fail without harm to others."""

import json
import time

import pytest
import torch

from boxmend.bench.speed.tables import compute_ratios, row_values
from boxmend.bench.speed.timing import WARM_UP, Timed, time_in_turns, time_seconds

CPU = torch.device("cpu")


class Counted:
    """Steps that only record their calls, and fail at a chosen call."""

    def __init__(self, name: str, calls: list[str], fails_at: int = -1):
        self.batch_size = 16
        self.name, self.calls, self.fails_at = name, calls, fails_at
        self.number = 0

    def settle(self) -> None:
        self.calls.append(f"{self.name} settles")

    def run(self, steps: int) -> None:
        self.calls.append(f"{self.name} {steps}")
        self.number += 1
        if self.number == self.fails_at:
            raise torch.OutOfMemoryError("no room for it\nand pages of advice")


def test_rows_are_warmed_up_and_then_take_turns() -> None:
    calls: list[str] = []
    notes: list[str] = []
    result = time_in_turns(
        {"a": lambda: Counted("a", calls), "b": lambda: Counted("b", calls)},
        CPU,
        2,
        3,
        notes.append,
    )
    turn = ["a settles", "a 3", "b settles", "b 3"]
    assert calls == [f"a {WARM_UP}", f"b {WARM_UP}", *turn, *turn]
    assert [len(row.blocks) for row in result.values()] == [2, 2]
    assert notes == ["preparing a", "preparing b", "block 1 of 2", "block 2 of 2"]


def test_a_row_that_fails_has_its_error_and_the_others_continue() -> None:
    calls: list[str] = []

    def impossible() -> Counted:
        raise ValueError("cannot be made")

    result = time_in_turns(
        {
            "impossible": impossible,
            "cold": lambda: Counted("cold", calls, fails_at=1),
            "late": lambda: Counted("late", calls, fails_at=3),  # warm-up, a block, and this
            "sound": lambda: Counted("sound", calls),
        },
        CPU,
        3,
        1,
        calls.append,
    )
    assert result["impossible"].error == "ValueError: cannot be made"
    assert result["cold"].error == "OutOfMemoryError: no room for it"
    assert result["late"].error == "OutOfMemoryError: no room for it"
    assert result["late"].milliseconds is None  # one block is no figure
    assert result["sound"].error is None
    assert len(result["sound"].blocks) == 3
    assert calls.count("late 1") == 2


def test_a_step_is_the_median_of_the_blocks_and_images_follow_from_it() -> None:
    row = Timed(batch_size=16, blocks=[10.0, 40.0, 20.0])
    assert row.milliseconds == 20.0
    assert row.images_per_second == 800.0  # 16 / 0.020 s


def test_what_was_not_measured_is_null() -> None:
    shown = json.loads(json.dumps(row_values(Timed(error="no")), allow_nan=False))
    assert shown["milliseconds"] is None
    assert shown["images_per_second"] is None
    assert shown["error"] == "no"


def test_ratios_are_quotients_of_what_rows_show() -> None:
    rows = {
        "plain": row_values(Timed(16, [100.0])),  # 160 images/s
        "baseline": row_values(Timed(16, [20.0], peak_bytes=400)),  # 800 images/s
        "mend": row_values(Timed(16, [24.0], peak_bytes=420)),
        "mend-paper": row_values(Timed(16, [], error="out of memory")),
    }
    listed = {(ratio["ratio"], ratio["measure"]): ratio["is"] for ratio in compute_ratios(rows)}
    assert listed == pytest.approx(
        {
            ("mend / baseline", "milliseconds"): 1.2,  # 24 / 20
            ("baseline / plain", "images_per_second"): 5.0,  # 800 / 160
            ("mend / baseline", "peak_bytes"): 1.05,  # 420 / 400
        }
    )


def test_time_is_taken_in_seconds() -> None:
    assert 0.01 <= time_seconds(CPU, lambda: time.sleep(0.01)) < 10
