"""Measure one table: the rows of one image size and one pair of counts, and their ratios."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from boxmend.bench.speed.choices import NUM_BLOCKS, PEER_ROWS, PLAIN_ROWS, Counts
from boxmend.bench.speed.plain import plain_steps
from boxmend.bench.speed.timed_training import TrainingFactory
from boxmend.bench.speed.timing import Timed, TimedTraining, time_in_turns


class Ratio(NamedTuple):
    """A ratio of two rows, with its target."""

    row: str
    other: str
    measure: str
    """A key of `row_values`."""
    wanted: str
    """The target with ResNet-50 on an H200; empty without one."""


COMPARISONS = (
    Ratio("mend-paper", "baseline", "milliseconds", "at most 1.1"),
    Ratio("mend", "baseline", "milliseconds", "at most 1.25"),
    Ratio("baseline", "plain", "images_per_second", "at least 4 at 320, 2 at 600/1000"),
    Ratio("baseline", "plain-on-device", "images_per_second", ""),
    Ratio("baseline", "baseline-eager", "images_per_second", ""),
    Ratio("mend", "mend-eager", "images_per_second", ""),
    Ratio("mend", "baseline", "peak_bytes", "at most 1.05"),
    *(Ratio(name, "baseline", "milliseconds", "") for name in PEER_ROWS),
)


def measure_table(factory: TrainingFactory, size: str, counts: Counts) -> dict[str, Any]:
    """Measure the chosen rows side by side."""
    names = factory.choices.all_rows
    # The plain recipe comes last: its threads would disturb the recording of other steps.
    order = sorted(names, key=lambda name: name in PLAIN_ROWS)
    makers = {name: _choose_maker(factory, name, size, counts) for name in order}
    note = _add_prefix(factory.note, f"{size}, {counts}: ")
    timed = time_in_turns(makers, factory.device, NUM_BLOCKS, factory.choices.block, note)
    rows = {name: row_values(timed[name]) for name in names}
    return {
        "image_size": size,
        "rois": counts.rois,
        "proposals": counts.proposals,
        "pre_nms": counts.pre_nms,
        "rows": rows,
        "ratios": compute_ratios(rows),
    }


def row_values(row: Timed) -> dict[str, Any]:
    """Return a row as plain values; None for what was not measured."""
    return {
        "milliseconds": row.milliseconds,
        "images_per_second": row.images_per_second,
        **asdict(row),
    }


def compute_ratios(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ratios of the measured rows."""
    measured = []
    for ratio in COMPARISONS:
        if ratio.row in rows and ratio.other in rows:
            above, below = rows[ratio.row][ratio.measure], rows[ratio.other][ratio.measure]
            if above is not None and below:
                name = f"{ratio.row} / {ratio.other}"
                measured.append({"ratio": name, **_describe_ratio(ratio), "is": above / below})
    return measured


def _describe_ratio(ratio: Ratio) -> dict[str, str]:
    return {"measure": ratio.measure, "wanted": ratio.wanted}


def _choose_maker(
    factory: TrainingFactory, row: str, size: str, counts: Counts
) -> Callable[[], TimedTraining]:
    if row in PLAIN_ROWS:
        return partial(plain_steps, factory, size, counts, on_device=row == "plain-on-device")
    return partial(factory.steps, row, size, counts)


def _add_prefix(note: Callable[[str], None], prefix: str) -> Callable[[str], None]:
    return lambda text: note(prefix + text)
