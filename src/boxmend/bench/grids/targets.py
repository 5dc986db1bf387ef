"""Targets for `mend` on photographs, and whether the results reach them.

Targets compare AP50 (area rule), goals also AP and the IoU of mended boxes, as means over the seeds
that all sides have. Whether a target is reached is final only with three seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import Gain, mean_difference
from boxmend.bench.grids.table_spec import TWO_STAGE, noise_rate
from boxmend.bench.grids.tables import GridTable, TableEntry, get_figure, make_table

CLEAN_NOISE = "label0-box0"
SCORE_WORDS = {"voc_ap50_area": "AP50", "coco_ap": "AP"}
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
MAX_RATE_ERROR = 0.05  # of the estimated label noise
MIN_SHARE_FROM_SCRATCH = 0.65  # share of the loss; a goal
TIGHT_BOX_GOALS = {
    "coco_ap": {"label40-box40": 0.7, "label20-box20": 0.7, "label0-box40": 0.7},
    "voc_ap50_area": {"label40-box40": 0.82, "label0-box40": 0.82, "label40-box0": 0.9},
}
"""The share of the loss that `mend` should recover, by score and noise; goals."""
OTHER_SHARE_GOALS = {
    ("gaussian", "label0-gaussian25"): 0.75,
    ("presence", "label0-box0-missing40"): 0.5,
}
"""The same by AP50, by table and noise."""
MENDED_IOU_GOALS = {"label40-box40": 0.74, "label20-box20": 0.83, "label0-box40": 0.74}
"""The mean IoU of the boxes that `apply` writes with the true boxes, by noise; goals."""
MENDED_IOU = "mending.boxes.settled.mean_iou"
MAX_AP_HARM = 0.003  # loss of AP on clean data; a goal


@dataclass(frozen=True)
class AccuracyTarget:
    """A target and the measured value."""

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
        *(_check_share(core, noise, least) for noise, least in MIN_SHARES.items()),
        *(_check_harm(core), _check_rivals(core, results), _check_rates(core, results)),
        _check_share(from_scratch, "label40-box40", MIN_SHARE_FROM_SCRATCH, "two-stage"),
        *_check_published_goals(core),
        *_check_tight_box_goals(results),
    ]


def _check_share(
    table: GridTable, noise: str, least: float, method: str = "mend"
) -> AccuracyTarget:
    gain = get_entry(table, method, noise).gain
    what = f"the loss at {format_noise(noise)}"
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
        measured=format_gain(gain, "%", "{:.1f}"),
        cells=list_cells(table, noise, gain, method, "baseline", "clean"),
        is_reached=gain.value >= least,
        is_final=len(gain.seeds) >= MIN_SEEDS,
    )


def _check_published_goals(table: GridTable) -> Iterator[AccuracyTarget]:
    """Yield the shares of the paper as goals."""
    for noise in MIN_SHARES:
        theirs = get_entry(table, "mend-paper", noise).paper_gain
        if theirs is not None:
            target = _check_share(table, noise, round(theirs, 2))
            what = f"`mend` reaches the paper's share at {format_noise(noise)}"
            yield replace(target, what=what, is_goal=True)


def _check_tight_box_goals(results: Sequence[Result]) -> Iterator[AccuracyTarget]:
    """Yield the goals for tight boxes, and for noise of other kinds."""
    tables = {metric: _make_metric_table("core", metric, results) for metric in TIGHT_BOX_GOALS}
    for metric, shares in TIGHT_BOX_GOALS.items():
        word = SCORE_WORDS[metric]
        for noise, least in shares.items():
            what = f"`mend` recovers the loss of {word} at {format_noise(noise)}"
            yield replace(_check_share(tables[metric], noise, least), what=what, is_goal=True)
    mended = _make_metric_table("core", MENDED_IOU, results)
    for noise, least in MENDED_IOU_GOALS.items():
        yield _check_mended_iou(mended, noise, least)
    for (name, noise), least in OTHER_SHARE_GOALS.items():
        table = _make_metric_table(name, "voc_ap50_area", results)
        yield replace(_check_share(table, noise, least), is_goal=True)
    yield replace(_check_harm(tables["coco_ap"], MAX_AP_HARM), is_goal=True)


def _make_metric_table(name: str, metric: str, results: Sequence[Result]) -> GridTable:
    return make_table(replace(LAYOUTS[name], metric=metric), results)


def _check_mended_iou(table: GridTable, noise: str, least: float) -> AccuracyTarget:
    entry = get_entry(table, "mend", noise)
    target = AccuracyTarget(
        f"mean IoU of mended boxes at {format_noise(noise)}", f"{least:.2f} or more", is_goal=True
    )
    if entry.ours is None:
        return target
    return replace(
        target,
        measured=f"{entry.ours.mean:.3f} ({len(entry.values)})",
        cells=entry.cells,
        is_reached=entry.ours.mean >= least,
        is_final=len(entry.values) >= MIN_SEEDS,
    )


def _check_harm(table: GridTable, max_harm: float = MAX_HARM) -> AccuracyTarget:
    word = SCORE_WORDS[table.metric]
    target = AccuracyTarget(
        f"`mend` does no harm to {word} on clean data",
        f"a loss below its standard error, or below {100 * max_harm:.1f} {word}",
    )
    clean, mend = (get_entry(table, name, CLEAN_NOISE) for name in ("clean", "mend"))
    gain = mean_difference(mend.values, clean.values)
    if gain.value is None:
        return target
    return replace(
        target,
        measured=format_gain(gain, word, "{:+.1f}"),
        cells=list_cells(table, CLEAN_NOISE, gain, "mend", "clean"),
        is_reached=-gain.value < max(max_harm, gain.error or 0.0),
        is_final=len(gain.seeds) >= MIN_SEEDS,
    )


def _check_rivals(table: GridTable, results: Sequence[Result]) -> AccuracyTarget:
    """Compare `mend` with the method that is furthest ahead; final with all cells of `core`."""
    target = AccuracyTarget(
        "no other method is ahead of `mend`", f"a lead of at most {100 * MAX_LEAD:.1f} AP50"
    )
    values = _group_by_noise(table, results)
    leads = [
        (gain.value, gain, noise, method)
        for noise, methods in values.items()
        for method, values_of_method in methods.items()
        if noise != CLEAN_NOISE and method != "mend"
        for gain in [mean_difference(values_of_method, methods.get("mend", {}))]
        if gain.value is not None
    ]
    if not leads:
        return target
    value, gain, noise, method = max(leads, key=lambda lead: lead[0])
    needed = {
        (column.name, row.name)
        for row in table.layout.rows
        for column in table.layout.columns
        if table.layout.is_run(row, column) and row.name not in ("clean", "mend")
    }
    return replace(
        target,
        measured=f"{method} at {noise}: {format_gain(gain, 'AP50', '{:+.1f}')}; largest lead "
        f"of {len(leads)}",
        cells=tuple(f"{noise}-{name}-{seed}" for name in (method, "mend") for seed in gain.seeds),
        is_reached=value <= MAX_LEAD,
        is_final=needed <= {(noise, method) for _, _, noise, method in leads},
    )


def _group_by_noise(
    table: GridTable, results: Sequence[Result]
) -> dict[str, dict[str, dict[int, float]]]:
    """Return AP50 by noise, method with variant, and seed, without variants of `mend`."""
    values: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        figure = get_figure(result, table.metric)
        is_ours = result.method == TWO_STAGE or (result.method == "mend" and result.variant)
        if result.error is not None or is_ours or figure is None:
            continue
        noise_of_result = result.noise
        noise = Cell(
            noise_of_result.labels,
            noise_of_result.boxes,
            result.method,
            presence=noise_of_result.presence,
        ).noise_name
        method = result.cell.removeprefix(f"{noise}-").removesuffix(f"-{result.seed}")
        values.setdefault(noise, {}).setdefault(method, {})[result.seed] = figure
    return values


def _check_rates(table: GridTable, results: Sequence[Result]) -> AccuracyTarget:
    """Return the worst label-noise estimate of `mend`; final with all cells of `core`."""
    target = AccuracyTarget(
        "`auto` estimates the label-noise rate", f"within {100 * MAX_RATE_ERROR:.0f} points"
    )
    estimates = {
        result.cell: (estimate, noise_rate(result.noise.labels))
        for result in results
        if result.method == "mend" and not result.variant and result.error is None
        if not (result.noise.presence or "").startswith("una:")  # whose labels are wrong, too
        for estimate in [get_figure(result, "estimates.label_noise")]
        if estimate is not None
    }
    if not estimates:
        return target
    estimate, true = max(estimates.values(), key=lambda pair: abs(pair[0] - pair[1]))
    in_core = [result for result in table.results if result.cell in estimates]
    return replace(
        target,
        measured=f"{100 * estimate:.1f} % instead of {100 * true:g} %: "
        f"largest error of {len(estimates)}",
        cells=tuple(estimates),
        is_reached=abs(estimate - true) <= MAX_RATE_ERROR,
        is_final=len(in_core) >= MIN_SEEDS * len(table.layout.columns),
    )


def format_gain(gain: Gain, unit: str, number_format: str) -> str:
    """Format a defined gain with its standard error, its unit and its number of seeds."""
    assert gain.value is not None
    error = "" if gain.error is None else f" ± {100 * gain.error:.1f}"
    return f"{number_format.format(100 * gain.value)}{error} {unit} ({len(gain.seeds)})"


def list_cells(table: GridTable, noise: str, gain: Gain, *rows: str) -> tuple[str, ...]:
    """Return the cells of a comparison."""
    cells = [cell for row in rows for cell in get_entry(table, row, noise).cells]
    return tuple(cell for cell in cells if int(cell.rpartition("-")[2]) in gain.seeds)


def get_entry(table: GridTable, row: str, column: str) -> TableEntry:
    """Return the entry of a row and a column by their names."""
    names = [column.name for column in table.layout.columns]
    lines = {layout_row.name: line for layout_row, line in table.lines()}
    return lines[row][names.index(column)]


def format_noise(noise: str) -> str:
    """Format the noise label40-box20 as 40/20, and label0-box0-missing40 as missing40."""
    labels, boxes, *presence = noise.split("-")
    if presence:
        return presence[0]
    return f"{labels.removeprefix('label')}/{boxes.removeprefix('box')}"
