"""Section of docs/results.md about mending in other trainers; tools/results_page.py assembles it.

The lines are those of benchmarks/ultralytics_training.py and benchmarks/fcos_training.py. Each
trainer is a scale of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from boxmend.bench.grids.comparability import (
    ABSENT,
    SHARED_SETTINGS,
    ResultDifference,
    find_differences,
)
from boxmend.bench.grids.layout_parts import CLEAN
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import Gain, mean_difference, recovered_share
from boxmend.bench.grids.table_spec import Column, Row, TableLayout, Variant
from boxmend.bench.grids.tables import BASELINE, GridTable, make_table
from boxmend.bench.grids.targets import (
    CLEAN_NOISE,
    MIN_SEEDS,
    AccuracyTarget,
    format_gain,
    format_noise,
    get_entry,
    list_cells,
)
from results_sections import (
    Lines,
    escape_markdown,
    index_table,
    markdown_table,
    mean_figure,
    split_cell,
)
from results_tables import format_figure, format_metrics, format_table

MENDER = "mender"
MIN_SHARES = {"label40-box40": 0.5, "label20-box20": 0.6, "label40-box0": 0.6}
"""The minimum share of the loss that a `Mender` recovers, by noise."""
MAX_HARM = 0.007  # loss of AP50 on clean data
MAX_MORE_TIME = 0.35  # of the seconds of `baseline`
MENDER_SETTINGS = frozenset({"prescreen", "settings", "warm_up", "every", "seconds"})
"""What the settings of a line have besides those of the training, which all lines should share."""
SIZE_SETTINGS = ("imgsz", "image_size", "size")
"""Names of the setting with the side of the images in pixels."""
ANNOTATION_FIGURES = {
    "wrong labels before": "mending.changes.labels.noise_before",
    "after": "mending.changes.labels.noise_after",
    "IoU before": "mending.changes.boxes.mean_iou_before",
    "IoU after": "mending.changes.boxes.mean_iou_after",
}
"""Columns about the annotations, and the dotted place of each figure in a line."""
COLUMNS = tuple(
    {
        column.name: column
        for name in ("core", "table1", "pair", "gaussian")
        for column in LAYOUTS[name].columns
    }.values()
)
"""All noise settings that a table can show, in order."""


@dataclass(frozen=True)
class Trainer:
    """A detector that another trainer trains."""

    name: str
    start: str
    """Its initial weights."""
    script: str


TRAINERS = {
    "yolov8n-voc320": Trainer("YOLOv8n", "random weights", "ultralytics_training.py"),
    "fcos-voc320": Trainer(
        "FCOS", "a ResNet-50 trained on ImageNet classification", "fcos_training.py"
    ),
}
"""The trainers by the scale of their lines."""


def other_trainers(lines_by_scale: Mapping[str, Lines]) -> str:
    """Return the section about mending in other trainers; empty without lines."""
    lines_by_scale = {scale: lines for scale, lines in lines_by_scale.items() if lines.results}
    if not lines_by_scale:
        return ""
    tables = {
        scale: make_table(_make_layout(scale, lines), lines.results)
        for scale, lines in lines_by_scale.items()
    }
    parts = [
        """## Mending in other trainers

Other trainers train here on the same images, without mending (`baseline`) and with a
[`boxmend.Mender`](mender.md) (`mender`). The `Mender` is given nothing about the noise: it receives
detections of the network during the training and, unless a row says "prescreen off", a prescreen of
the labels before it.

"Won back" is the share of the lost accuracy that is recovered. The figures on annotations compare
those that `boxmend apply` writes with the truth, as means over seeds: the share of wrong labels and
the mean IoU with the true box, in percent. "Time" is that of the training as a multiple of
`baseline` with the same noise and seed. Trainings shared a machine, so it is not exact. A
prescreen, which took half a minute, is not part of it."""
    ]
    rows = [
        [target.verdict, target.what, target.needed, target.measured, places]
        for scale, table in tables.items()
        for target in _evaluate_targets(TRAINERS[scale].name, table)
        for places in [lines_by_scale[scale].format_places(target.cells)]
    ]
    if rows:
        parts.append(
            'Targets by AP50 (area rule); "so far" marks fewer than three seeds. The number in '
            "parentheses counts seeds or, for the time, pairs of trainings.\n\n"
            + markdown_table(["", "what", "needed", "measured", "lines"], rows)
        )
    parts += [_describe_trainer(scale, tables[scale], lines_by_scale[scale]) for scale in tables]
    return "\n\n".join(parts)


def index_other_trainer(
    scale: str, trainer_lines: Sequence[tuple[str, Result]], effective: Lines
) -> str:
    """Return the part of the section "Lines" that lists the lines of a trainer."""
    return f"{TRAINERS[scale].name}:\n\n{index_table(trainer_lines, effective)}"


def _make_layout(scale: str, lines: Lines) -> TableLayout:
    """Return a table of all methods, variants and noise settings that have lines."""
    noises = {split_cell(result)[0] for result in lines.results}
    variants = {(result.method, _describe_variant(result)): result for result in lines.results}
    order = sorted(variants, key=lambda key: (key[0] != BASELINE, key))
    rows = [
        Row(f"{method}{variant}", method, cast(Variant, variants[method, variant].variant))
        for method, variant in order
    ]
    if BASELINE not in [row.name for row in rows]:
        rows.insert(0, Row(BASELINE, BASELINE))
    on_clean = (CLEAN.name, *(row.name for row in rows if row.name != BASELINE))
    return TableLayout(
        scale,
        TRAINERS[scale].name,
        tuple(column for column in COLUMNS if column.name in noises),
        (CLEAN, *rows),
        only={CLEAN_NOISE: on_clean},
    )


def _describe_variant(result: Result) -> str:
    """Return the settings of a variant for the name of its row, like ", prescreen off"."""
    return "".join(f", {name} {value}" for name, value in sorted(result.variant.items()))


def _describe_trainer(scale: str, table: GridTable, lines: Lines) -> str:
    trainer = TRAINERS[scale]
    notes = [
        f"- The lines differ in {escape_markdown(difference.describe())}."
        for difference in _find_differences(lines)
    ]
    metrics = format_metrics(table.layout, lines)
    parts = [
        f"### {trainer.name}",
        f"{trainer.name} starts from {trainer.start}{_describe_schedule(lines)} "
        f"(`benchmarks/{trainer.script}`).",
        "\n".join(notes),
        f"AP50 by the area rule:\n\n{format_table(table, lines, format_figure)}",
        f"With AP and AP75:\n\n{metrics}" if metrics else "",
        _compare_annotations(table, lines),
    ]
    return "\n\n".join(part for part in parts if part)


def _find_differences(lines: Lines) -> Iterator[ResultDifference]:
    """Yield in what the lines differ besides noise, method and seed: data, versions and settings.

    Settings of the `Mender` and figures of a training may differ.
    """
    yield from (each for each in find_differences(lines.results) if not each.among)
    names = {name for result in lines.results for name in result.settings}
    for name in sorted(names - MENDER_SETTINGS - set(SHARED_SETTINGS)):
        cells: dict[str, tuple[str, ...]] = {}
        for result in lines.results:
            value = str(result.settings.get(name, ABSENT))
            cells[value] = (*cells.get(value, ()), result.cell)
        if len(cells) > 1:
            yield ResultDifference(f"settings.{name}", "", cells)


def _describe_schedule(lines: Lines) -> str:
    """Return epochs and size of the images as part of a sentence, if the lines have them."""
    epochs = _join_settings(lines, "epochs")
    size = _join_settings(lines, *SIZE_SETTINGS)
    text = f" and trains for {epochs} epochs" if epochs else ""
    return text + (f"{'' if text else ','} on images of {size} pixels" if size else "")


def _join_settings(lines: Lines, *names: str) -> str:
    """Join the different values that the lines have for a setting with any of these names."""
    values = {
        str(result.settings[name])
        for result in lines.results
        for name in names
        if name in result.settings
    }
    return " or ".join(sorted(values))


def _compare_annotations(table: GridTable, lines: Lines) -> str:
    """Return the table of the annotations before and after, and of the time."""
    results = {result.cell: result for result in lines.results}
    rows = []
    for column in table.layout.columns:
        for row in table.layout.rows:
            group = [results[cell] for cell in get_entry(table, row.name, column.name).cells]
            group = [result for result in group if result.method != BASELINE]
            if group:
                rows.append(_make_annotation_row(column, row, group, lines))
    if not rows:
        return ""
    head = ["noise", "method", *ANNOTATION_FIGURES, "time", "lines"]
    body = markdown_table(head, rows)
    return f"The annotations before and after, and the time:\n\n{body}"


def _make_annotation_row(
    column: Column, row: Row, group: Sequence[Result], lines: Lines
) -> list[str]:
    figures = [mean_figure(group, place) for place in ANNOTATION_FIGURES.values()]
    pairs = _pair_with_baseline(group, lines.results)
    cells = [result.cell for result in group]
    baseline_cells = [baseline.cell for _, baseline in pairs]
    name = f"`{row.name}` {lines.mark_versions(cells)}".rstrip()
    places = lines.format_places([*cells, *baseline_cells])
    return [column.title, name, *figures, _format_ratio(_compare_seconds(pairs)), places]


Pair = tuple[Result, Result]
"""A training with mending, and `baseline` with the same noise, seed and hardware."""


def _pair_with_baseline(mended: Sequence[Result], results: Sequence[Result]) -> list[Pair]:
    baselines = {
        (split_cell(result)[0], result.seed, result.hardware): result
        for result in results
        if result.method == BASELINE and not result.variant
    }
    return [
        (result, baselines[key])
        for result in mended
        for key in [(split_cell(result)[0], result.seed, result.hardware)]
        if key in baselines
    ]


def _compare_seconds(pairs: Sequence[Pair]) -> Gain:
    """Return the ratio of the mean seconds with its standard error; pairs count as seeds."""
    mended = {number: pair[0].seconds for number, pair in enumerate(pairs)}
    baseline = {number: pair[1].seconds for number, pair in enumerate(pairs)}
    return recovered_share(mended, dict.fromkeys(mended, 0.0), baseline)


def _format_ratio(ratio: Gain) -> str:
    if ratio.value is None:
        return ""
    error = "" if ratio.error is None else f" ± {ratio.error:.2f}"
    return f"{ratio.value:.2f}{error} ({len(ratio.seeds)})"


def _evaluate_targets(name: str, table: GridTable) -> Iterator[AccuracyTarget]:
    """Yield the targets of a trainer that its lines decide."""
    if MENDER not in [row.name for row in table.layout.rows]:
        return
    for noise, least in MIN_SHARES.items():
        if noise in [column.name for column in table.layout.columns]:
            yield from _check_share(name, table, noise, least)
    if CLEAN_NOISE in [column.name for column in table.layout.columns]:
        yield from _check_harm(name, table)
    yield from _check_time(name, table)


def _check_share(name: str, table: GridTable, noise: str, least: float) -> Iterator[AccuracyTarget]:
    gain = get_entry(table, MENDER, noise).gain
    if gain is not None and gain.value is not None:
        yield AccuracyTarget(
            f"{name}: `{MENDER}` recovers the loss at {format_noise(noise)}",
            f"{100 * least:.0f} % or more",
            format_gain(gain, "%", "{:.1f}"),
            list_cells(table, noise, gain, MENDER, BASELINE, CLEAN.name),
            is_reached=gain.value >= least,
            is_final=len(gain.seeds) >= MIN_SEEDS,
        )


def _check_harm(name: str, table: GridTable) -> Iterator[AccuracyTarget]:
    clean, mender = (get_entry(table, row, CLEAN_NOISE) for row in (CLEAN.name, MENDER))
    gain = mean_difference(mender.values, clean.values)
    if gain.value is not None:
        yield AccuracyTarget(
            f"{name}: `{MENDER}` does no harm on clean data",
            f"a loss of at most {100 * MAX_HARM:.1f} AP50",
            format_gain(gain, "AP50", "{:+.1f}"),
            list_cells(table, CLEAN_NOISE, gain, MENDER, CLEAN.name),
            is_reached=-gain.value <= MAX_HARM,
            is_final=len(gain.seeds) >= MIN_SEEDS,
        )


def _check_time(name: str, table: GridTable) -> Iterator[AccuracyTarget]:
    """Compare the time of all trainings with mending that have a baseline."""
    mended = [result for result in table.results if result.method == MENDER and not result.variant]
    pairs = _pair_with_baseline(mended, table.results)
    ratio = _compare_seconds(pairs)
    if ratio.value is not None:
        more = Gain(ratio.value - 1, ratio.error, ratio.seeds, ())
        yield AccuracyTarget(
            f"{name}: a training with `{MENDER}` takes little more time than `{BASELINE}`",
            f"less than {100 * MAX_MORE_TIME:.0f} % more",
            format_gain(more, "%", "{:+.1f}"),
            tuple(result.cell for pair in pairs for result in pair),
            is_reached=ratio.value - 1 < MAX_MORE_TIME,
            is_final=len({result.seed for result, _ in pairs}) >= MIN_SEEDS,
        )
