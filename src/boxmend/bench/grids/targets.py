"""What `mend` has to reach on photographs, and what the results say of it so far.

By AP50 (area rule), as means over the seeds that all sides have. A bar counts as reached or missed
for good only with three seeds.
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
SEEDS = 3  # that a mean needs
SHARES = {
    "label40-box40": 0.6,
    "label40-box0": 0.6,
    "label0-box40": 0.6,
    "label20-box20": 0.4,
}
"""Least share of the loss that `mend` wins back, by noise."""
HARM = 0.007  # AP50 that it may cost on clean data, or its standard error
LEAD = 0.015  # AP50 that a rival may be ahead
RATE = 0.05  # by which an estimated label-noise rate may be off
AFRESH = 0.65  # share after training afresh: a goal beyond the bars


@dataclass(frozen=True)
class Bar:
    """One thing to reach."""

    what: str
    needed: str
    measured: str = ""
    """Nothing where it was not run."""
    cells: tuple[str, ...] = ()
    """Whose results it is measured by."""
    is_reached: bool | None = None
    """None where it was not run."""
    is_final: bool = False
    """Whether there is as much as it takes to say so."""
    is_goal: bool = False
    """Beyond the bars."""

    @property
    def verdict(self) -> str:
        """Say in a word or two how it stands."""
        if self.is_reached is None:
            return "not run"
        return ("reached" if self.is_reached else "missed") + ("" if self.is_final else ", so far")


def evaluate_targets(results: Sequence[Result]) -> list[Bar]:
    """Hold results, one of each cell and all of one scale, against every bar and goal."""
    core = make_table(LAYOUTS["core"], results)
    afresh = make_table(LAYOUTS["two-stage"], results)
    return [
        *(_share(core, noise, least) for noise, least in SHARES.items()),
        *(_harm(core), _rivals(core, results), _rates(core, results)),
        _share(afresh, "label40-box40", AFRESH, "two-stage"),
        *_published(core),
    ]


def _share(made: Table, noise: str, least: float, method: str = "mend") -> Bar:
    gain = _square(made, method, noise).gain
    what = f"the loss at {_noise_words(noise)}"
    if method == "mend":
        bar = Bar(f"`mend` wins back {what}", f"{100 * least:.0f} % or more")
    else:
        bar = Bar(
            f"training from scratch wins back {what}", f"{100 * least:.0f} % or more", is_goal=True
        )
    if gain is None or gain.value is None:
        return bar
    return replace(
        bar,
        measured=_measured(gain, "%", "{:.1f}"),
        cells=_cells(made, noise, gain, method, "baseline", "clean"),
        is_reached=gain.value >= least,
        is_final=len(gain.seeds) >= SEEDS,
    )


def _published(made: Table) -> Iterator[Bar]:
    """The paper's own shares, as goals."""
    for noise in SHARES:
        theirs = _square(made, "mend-paper", noise).paper_gain
        if theirs is not None:
            bar = _share(made, noise, round(theirs, 2))
            what = f"`mend` reaches the paper's share at {_noise_words(noise)}"
            yield replace(bar, what=what, is_goal=True)


def _harm(made: Table) -> Bar:
    bar = Bar(
        "`mend` does no harm on clean data",
        f"a loss below its standard error, or below {100 * HARM:.1f} AP50",
    )
    clean, mend = (_square(made, name, CLEAN) for name in ("clean", "mend"))
    gain = mean_difference(mend.values, clean.values)
    if gain.value is None:
        return bar
    return replace(
        bar,
        measured=_measured(gain, "AP50", "{:+.1f}"),
        cells=_cells(made, CLEAN, gain, "mend", "clean"),
        is_reached=-gain.value < max(HARM, gain.error or 0.0),
        is_final=len(gain.seeds) >= SEEDS,
    )


def _rivals(made: Table, results: Sequence[Result]) -> Bar:
    """The rival that is furthest ahead, wherever it and `mend` were run; for good with `core`."""
    bar = Bar("no other method is ahead of `mend`", f"a lead of at most {100 * LEAD:.1f} AP50")
    values = _by_noise(made, results)
    leads = [
        (gain.value, gain, noise, method)
        for noise, methods in values.items()
        for method, found in methods.items()
        if noise != CLEAN and method != "mend"
        for gain in [mean_difference(found, methods.get("mend", {}))]
        if gain.value is not None
    ]
    if not leads:
        return bar
    value, gain, noise, method = max(leads, key=lambda one: one[0])
    needed = {
        (column.name, row.name)
        for row in made.layout.rows
        for column in made.layout.columns
        if made.layout.is_run(row, column) and row.name not in ("clean", "mend")
    }
    return replace(
        bar,
        measured=f"{method} at {noise}: {_measured(gain, 'AP50', '{:+.1f}')}; largest lead "
        f"of {len(leads)}",
        cells=tuple(f"{noise}-{one}-{seed}" for one in (method, "mend") for seed in gain.seeds),
        is_reached=value <= LEAD,
        is_final=needed <= {(noise, method) for _, _, noise, method in leads},
    )


def _by_noise(made: Table, results: Sequence[Result]) -> dict[str, dict[str, dict[int, float]]]:
    """AP50 by noise, method with its variant, and seed; without our own in other forms."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for one in results:
        value = get_figure(one, made.metric)
        is_ours = one.method == TWO_STAGE or (one.method == "mend" and one.variant)
        if one.error is not None or is_ours or value is None:
            continue
        spoilt = one.noise
        noise = Cell(spoilt.labels, spoilt.boxes, one.method, presence=spoilt.presence).noise_name
        method = one.cell.removeprefix(f"{noise}-").removesuffix(f"-{one.seed}")
        found.setdefault(noise, {}).setdefault(method, {})[one.seed] = value
    return found


def _rates(made: Table, results: Sequence[Result]) -> Bar:
    """The label-noise rate that `mend` estimated worst, anywhere; for good with all of `core`."""
    bar = Bar("`auto` estimates the label-noise rate", f"within {100 * RATE:.0f} points")
    found = {
        one.cell: (told, noise_rate(one.noise.labels))
        for one in results
        if one.method == "mend" and not one.variant and one.error is None
        for told in [get_figure(one, "estimates.label_noise")]
        if told is not None
    }
    if not found:
        return bar
    told, true = max(found.values(), key=lambda one: abs(one[0] - one[1]))
    in_core = [one for one in made.results if one.cell in found]
    return replace(
        bar,
        measured=f"{100 * told:.1f} % instead of {100 * true:g} %: largest error of {len(found)}",
        cells=tuple(found),
        is_reached=abs(told - true) <= RATE,
        is_final=len(in_core) >= SEEDS * len(made.layout.columns),
    )


def _measured(gain: Gain, unit: str, written: str) -> str:
    assert gain.value is not None
    error = "" if gain.error is None else f" ± {100 * gain.error:.1f}"
    return f"{written.format(100 * gain.value)}{error} {unit} ({len(gain.seeds)})"


def _cells(made: Table, noise: str, gain: Gain, *rows: str) -> tuple[str, ...]:
    """The cells that a comparison is made of."""
    found = [cell for row in rows for cell in _square(made, row, noise).cells]
    return tuple(cell for cell in found if int(cell.rpartition("-")[2]) in gain.seeds)


def _square(made: Table, row: str, column: str) -> TableEntry:
    names = [one.name for one in made.layout.columns]
    lines = {one.name: line for one, line in made.lines()}
    return lines[row][names.index(column)]


def _noise_words(noise: str) -> str:
    """label40-box20 as 40/20."""
    labels, _, boxes = noise.partition("-")
    return f"{labels.removeprefix('label')}/{boxes.removeprefix('box')}"
