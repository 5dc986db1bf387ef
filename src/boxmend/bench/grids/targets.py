"""Targets for `mend` on photographs, and whether the results reach them.

Targets compare AP50 (area rule), as means over the seeds that all sides have. Whether a target is
reached is final only with three seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import Gain, mean_difference
from boxmend.bench.grids.table_spec import TWO_STAGE, noise_rate
from boxmend.bench.grids.tables import Table, TableEntry, get_figure, make_table

CLEAN = "label0-box0"
MIN_SEEDS = 3
MIN_SHARES = {
    "label40-box40": 0.6,
    "label40-box0": 0.6,
    "label0-box40": 0.6,
    "label20-box20": 0.4,
}
"""The minimum share of the loss that `mend` recovers, by noise."""
MAX_HARM = 0.007  # loss of AP50 on clean data, unless its standard error is larger
MAX_LEAD = 0.015  # AP50 by which a rival may be ahead
MAX_RATE_ERROR = 0.05  # of the estimated label-noise rate
FROM_SCRATCH = 0.65  # share after training from scratch: a goal


@dataclass(frozen=True)
class AccuracyTarget:
    """A target, and what was measured."""

    what: str
    needed: str
    measured: str = ""
    """Empty if no cell was run."""
    cells: tuple[str, ...] = ()
    """The cells whose results are compared."""
    is_reached: bool | None = None
    """None if no cell was run."""
    is_final: bool = False
    """Whether there are enough results for a final statement."""
    is_goal: bool = False
    """Whether it is a further goal, and not a target."""

    @property
    def verdict(self) -> str:
        """Return "not run", "reached" or "missed", with ", so far" if it is not final."""
        if self.is_reached is None:
            return "not run"
        return ("reached" if self.is_reached else "missed") + ("" if self.is_final else ", so far")


def evaluate_targets(results: Sequence[Result]) -> list[AccuracyTarget]:
    """Compare results of one scale, one per cell, with every target and goal."""
    core = make_table(LAYOUTS["core"], results)
    from_scratch = make_table(LAYOUTS["two-stage"], results)
    return [
        *(_share(core, noise, least) for noise, least in MIN_SHARES.items()),
        *(_harm(core), _rivals(core, results), _rates(core, results)),
        _share(from_scratch, "label40-box40", FROM_SCRATCH, "two-stage"),
        *_published_goals(core),
    ]


def _share(table: Table, noise: str, least: float, method: str = "mend") -> AccuracyTarget:
    gain = _square(table, method, noise).gain
    what = f"the loss at {_noise_words(noise)}"
    if method == "mend":
        target = AccuracyTarget(f"`mend` recovers {what}", f"{100 * least:.0f} % or more")
    else:
        target = AccuracyTarget(
            f"training from scratch recovers {what}", f"{100 * least:.0f} % or more", is_goal=True
        )
    if gain is None or gain.value is None:
        return target
    return replace(
        target,
        measured=_format_gain(gain, "%", "{:.1f}"),
        cells=_cells(table, noise, gain, method, "baseline", "clean"),
        is_reached=gain.value >= least,
        is_final=len(gain.seeds) >= MIN_SEEDS,
    )


def _published_goals(table: Table) -> Iterator[AccuracyTarget]:
    """Yield the shares of the paper as goals."""
    for noise in MIN_SHARES:
        theirs = _square(table, "mend-paper", noise).paper_gain
        if theirs is not None:
            target = _share(table, noise, round(theirs, 2))
            what = f"`mend` reaches the paper's share at {_noise_words(noise)}"
            yield replace(target, what=what, is_goal=True)


def _harm(table: Table) -> AccuracyTarget:
    target = AccuracyTarget(
        "`mend` does no harm on clean data",
        f"a loss below its standard error, or below {100 * MAX_HARM:.1f} AP50",
    )
    clean, mend = (_square(table, name, CLEAN) for name in ("clean", "mend"))
    gain = mean_difference(mend.values, clean.values)
    if gain.value is None:
        return target
    return replace(
        target,
        measured=_format_gain(gain, "AP50", "{:+.1f}"),
        cells=_cells(table, CLEAN, gain, "mend", "clean"),
        is_reached=-gain.value < max(MAX_HARM, gain.error or 0.0),
        is_final=len(gain.seeds) >= MIN_SEEDS,
    )


def _rivals(table: Table, results: Sequence[Result]) -> AccuracyTarget:
    """Compare with the rival that is furthest ahead; final with all cells of `core`."""
    target = AccuracyTarget(
        "no other method is ahead of `mend`", f"a lead of at most {100 * MAX_LEAD:.1f} AP50"
    )
    values = _by_noise(table, results)
    leads = [
        (gain.value, gain, noise, method)
        for noise, methods in values.items()
        for method, found in methods.items()
        if noise != CLEAN and method != "mend"
        for gain in [mean_difference(found, methods.get("mend", {}))]
        if gain.value is not None
    ]
    if not leads:
        return target
    value, gain, noise, method = max(leads, key=lambda one: one[0])
    needed = {
        (column.name, row.name)
        for row in table.layout.rows
        for column in table.layout.columns
        if table.layout.is_run(row, column) and row.name not in ("clean", "mend")
    }
    return replace(
        target,
        measured=f"{method} at {noise}: {_format_gain(gain, 'AP50', '{:+.1f}')}; largest lead "
        f"of {len(leads)}",
        cells=tuple(f"{noise}-{one}-{seed}" for one in (method, "mend") for seed in gain.seeds),
        is_reached=value <= MAX_LEAD,
        is_final=needed <= {(noise, method) for _, _, noise, method in leads},
    )


def _by_noise(table: Table, results: Sequence[Result]) -> dict[str, dict[str, dict[int, float]]]:
    """Return AP50 by noise, method with variant, and seed, without variants of `mend`."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for one in results:
        value = get_figure(one, table.metric)
        is_ours = one.method == TWO_STAGE or (one.method == "mend" and one.variant)
        if one.error is not None or is_ours or value is None:
            continue
        spoilt = one.noise
        noise = Cell(spoilt.labels, spoilt.boxes, one.method, presence=spoilt.presence).noise_name
        method = one.cell.removeprefix(f"{noise}-").removesuffix(f"-{one.seed}")
        found.setdefault(noise, {}).setdefault(method, {})[one.seed] = value
    return found


def _rates(table: Table, results: Sequence[Result]) -> AccuracyTarget:
    """Return the worst label-noise estimate of `mend`; final with all cells of `core`."""
    target = AccuracyTarget(
        "`auto` estimates the label-noise rate", f"within {100 * MAX_RATE_ERROR:.0f} points"
    )
    found = {
        one.cell: (estimate, noise_rate(one.noise.labels))
        for one in results
        if one.method == "mend" and not one.variant and one.error is None
        for estimate in [get_figure(one, "estimates.label_noise")]
        if estimate is not None
    }
    if not found:
        return target
    estimate, true = max(found.values(), key=lambda one: abs(one[0] - one[1]))
    in_core = [one for one in table.results if one.cell in found]
    return replace(
        target,
        measured=f"{100 * estimate:.1f} % instead of {100 * true:g} %: "
        f"largest error of {len(found)}",
        cells=tuple(found),
        is_reached=abs(estimate - true) <= MAX_RATE_ERROR,
        is_final=len(in_core) >= MIN_SEEDS * len(table.layout.columns),
    )


def _format_gain(gain: Gain, unit: str, number_format: str) -> str:
    assert gain.value is not None
    error = "" if gain.error is None else f" ± {100 * gain.error:.1f}"
    return f"{number_format.format(100 * gain.value)}{error} {unit} ({len(gain.seeds)})"


def _cells(table: Table, noise: str, gain: Gain, *rows: str) -> tuple[str, ...]:
    """Return the cells of a comparison."""
    found = [cell for row in rows for cell in _square(table, row, noise).cells]
    return tuple(cell for cell in found if int(cell.rpartition("-")[2]) in gain.seeds)


def _square(table: Table, row: str, column: str) -> TableEntry:
    names = [one.name for one in table.layout.columns]
    lines = {one.name: line for one, line in table.lines()}
    return lines[row][names.index(column)]


def _noise_words(noise: str) -> str:
    """Return label40-box20 as 40/20."""
    labels, _, boxes = noise.partition("-")
    return f"{labels.removeprefix('label')}/{boxes.removeprefix('box')}"
