"""Sections of docs/results.md about single lines; tools/results_page.py assembles the page."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxmend.bench.grids.published_tables import get_published
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import summarize_seeds
from boxmend.bench.grids.table_spec import noise_rate
from boxmend.bench.grids.tables import get_figure
from boxmend.bench.grids.wording import format_percent

MENDING_TABLES = ("refined-boxes", "refined-labels")
"""Published tables about the mending."""
PICTURES = {
    "losses.svg": "Losses of right and wrong labels in the last epoch",
    "before-after.jpg": "The noisy annotations (top) and the mended ones (bottom); the truth is "
    "white, wrong labels are red",
}
CELLS_WITH_PICTURES = ("label40-box40-mend-0", "label40-box40-mend-paper-0")
MENDING_COLUMNS = {
    "CorLoc raw": "mending.boxes.noisy.corloc",
    "matched": "mending.boxes.matched.corloc",
    "final": "mending.boxes.final.corloc",
    "IoU before": "mending.changes.boxes.mean_iou_before",
    "after": "mending.changes.boxes.mean_iou_after",
    "TP": "mending.labels.judgment.tp",
    "TN": "mending.labels.judgment.tn",
    "FP": "mending.labels.judgment.fp",
    "FN": "mending.labels.judgment.fn",
    "N before": "mending.labels.noise_before",
    "N*": "mending.labels.noise_after",
    "discarded": "mending.labels.discarded",
    "wrong as written": "mending.changes.labels.noise_after",
}
"""Columns of the table about the mending, and the dotted place of each figure in a line."""
METHODS_WITHOUT_MENDING = ("baseline", "two-stage")
"""Methods that train on the annotations unchanged."""
PUBLISHED_MENDING = {"CorLoc raw": "raw", "matched": "matched", "final": "final"} | {
    name: name for name in ("TP", "TN", "FP", "FN", "N*")
}


@dataclass(frozen=True)
class Lines:
    """The effective results, one of each cell, and their places."""

    results: tuple[Result, ...]
    places: Mapping[str, str]
    """By cell: FILE:LINE."""

    def format_places(self, cells: Iterable[str]) -> str:
        """Return the places of cells by file, such as voc320:1, 4-6."""
        by_file: dict[str, list[int]] = {}
        for file, number in sorted({_split_place(self.places[cell]) for cell in cells}):
            by_file.setdefault(file, []).append(number)
        return "; ".join(f"{file}:{_format_ranges(numbers)}" for file, numbers in by_file.items())

    def mark_versions(self, cells: Collection[str]) -> str:
        """Return a dagger if the lines of these cells come from different versions of boxmend."""
        codes = {result.code for result in self.results if result.cell in cells}
        return "†" if len(codes) > 1 else ""


def _split_place(place: str) -> tuple[str, int]:
    name, _, number = place.rpartition(":")
    return name, int(number)


def _format_ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, with consecutive ones as ranges."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(
        str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups
    )


def mending(lines: Lines) -> str:
    """Return the section on the quality of the mending, by noise and method."""
    groups = _group_results(
        result
        for result in lines.results
        if result.mending and result.method not in METHODS_WITHOUT_MENDING
    )
    rows = []
    for (noise, method), group in sorted(groups.items(), key=lambda item: item[0][0]):
        figures = [
            mean_figure(group, place) + _published_figure(noise, method, name)
            for name, place in MENDING_COLUMNS.items()
        ]
        cells = [result.cell for result in group]
        name = f"`{method}` {lines.mark_versions(cells)}".rstrip()
        rows.append([noise, name, *figures, lines.format_places(cells)])
    text = """## The mending

Comparison of the mended annotations with the truth, as means over seeds; the paper's figures in
brackets. The paper defines these columns:

- CorLoc: the share of boxes that overlap a true one by an IoU of 0.7 or more, as annotated, after
  centre matching, and final.
- TP and FN: the shares of wrong labels judged wrong and right in the last epoch. TN and FP: the
  shares of right labels judged right and wrong.
- N: the share of wrong labels before the mending. N*: the same after it, without the discarded
  ones.

The IoU with the true box and "wrong as written" describe what `boxmend apply` writes."""
    return f"{text}\n\n{markdown_table(['noise', 'method', *MENDING_COLUMNS, 'lines'], rows)}"


def _group_results(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Group results by noise and method with its variant, in the order of their lines."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault(split_cell(result), []).append(result)
    return groups


def split_cell(result: Result) -> tuple[str, str]:
    """Return the noise, and the method with its variant, from the name of the cell."""
    stem = result.cell.rpartition("-")[0]
    start = stem.index(f"-{result.method}")
    return stem[:start], stem[start + 1 :]


def mean_figure(results: Sequence[Result], place: str) -> str:
    """Return the mean of a figure over results in percent; empty if none has it."""
    figures = {
        result.seed: value for result in results if (value := get_figure(result, place)) is not None
    }
    summary = summarize_seeds(figures)
    return "" if summary is None else format_percent(summary.mean)


def _published_figure(noise: str, method: str, name: str) -> str:
    if name not in PUBLISHED_MENDING:
        return ""
    for table_name in MENDING_TABLES:
        records = get_published(table_name)
        figure = records and records.fraction(f"{method}: {PUBLISHED_MENDING[name]}", noise)
        if figure:
            return f" [{100 * figure:.1f}]"
    return ""


def rates(lines: Lines) -> str:
    """Return the section on the noise rates that `mend` estimates, line by line."""
    rows = []
    for result in lines.results:
        if result.method == "mend" and result.estimates and not result.variant:
            rates = noise_rate(result.noise.labels), noise_rate(result.noise.boxes)
            true_labels, true_boxes = (f"{100 * rate:g}" for rate in rates)
            labels, boxes = (_format_estimate(result, f"{name}_noise") for name in ("label", "box"))
            row = [f"`{result.cell}`", true_labels, labels, true_boxes, boxes]
            rows.append([*row, lines.format_places([result.cell])])
    head = ["cell", "labels, true", "estimated", "boxes, true", "estimated", "lines"]
    body = markdown_table(head, rows) if rows else "There are no results of `mend` yet."
    return f"""## Noise rates that `mend` estimates

In percent, with 95 % intervals. The figure for boxes is N, for uniform noise within ± N. For
Gaussian noise the true figure is the standard deviation, which equals that of uniform noise with
an N 1.73 times as large.

{body}"""


def _format_estimate(result: Result, name: str) -> str:
    values = (get_figure(result, f"estimates.{name}{end}") for end in ("", "_low", "_high"))
    rate, low, high = ("?" if value is None else format_percent(value) for value in values)
    return rate if low == "?" else f"{rate} ({low} to {high})"


def cost(lines: Lines) -> str:
    """Return the section on seconds and speed, by method."""
    by_method: dict[str, list[Result]] = {}
    for result in lines.results:
        by_method.setdefault(split_cell(result)[1], []).append(result)
    rows = []
    for method, results in sorted(by_method.items()):
        speeds = [result.images_per_second for result in results if result.images_per_second]
        speed = f"{sum(speeds) / len(speeds):.0f}" if speeds else ""
        seconds = f"{sum(result.seconds for result in results) / len(results):.0f}"
        hardware = ", ".join(sorted({result.hardware for result in results}))
        places = lines.format_places(result.cell for result in results)
        rows.append([f"`{method}`", str(len(results)), seconds, speed, hardware, places])
    head = ["method", "cells", "seconds per cell", "images/s", "hardware", "lines"]
    return f"""## What it cost

Seconds include training and scoring. Several trainings ran side by side on one GPU, so these
figures do not measure the speed of a method; [this table](methods/index.md#what-they-cost) does.

{markdown_table(head, rows)}"""


def pictures(project: Path) -> str:
    """Return the section with the pictures that exist for the selected cells."""
    parts = ["## Pictures"]
    for cell in CELLS_WITH_PICTURES:
        for name, caption in PICTURES.items():
            if (project / "docs" / "images" / "results" / cell / name).is_file():
                parts.append(f"`{cell}`. {caption}:\n\n![{caption}](images/results/{cell}/{name})")
    if len(parts) == 1:
        parts.append("None yet.")
    return "\n\n".join(parts)


def index(final: Sequence[tuple[str, Result]], lines: Lines) -> str:
    """Return the section that lists every line of the comparison with its scores."""
    return f"""## Lines

AP50 by both rules. "Code" is a hash of the source of boxmend; earlier lines do not have it.

{index_table(final, lines)}"""


def index_table(final: Sequence[tuple[str, Result]], lines: Lines) -> str:
    """Return a table of lines with their scores, origins and states."""
    rows = []
    for place, result in final:
        values = [get_figure(result, f"voc_ap50_{rule}") for rule in ("area", "11point")]
        scores = ["" if value is None else f"{100 * value:.2f}" for value in values]
        if lines.places.get(result.cell) == place:
            state = ""
        else:
            state = "replaced by a later one" if result.error is None else "failed"
        started = result.started[:16].replace("T", " ")
        origin = [result.hardware, f"torch {result.versions.get('torch', '?')}", result.code]
        rows.append([place, f"`{result.cell}`", *scores, started, *origin, state])
    head = ["line", "cell", "area", "11 points", "started", "hardware", "versions", "code", ""]
    return markdown_table(head, rows)


def other_lines(lines: Sequence[tuple[str, Result]]) -> str:
    """Return the section about lines on other data, such as those used to choose settings."""
    if not lines:
        return ""
    rows = []
    for place, result in lines:
        value = get_figure(result, "voc_ap50_area")
        score = "" if value is None else format_percent(value)
        addresses = result.data.addresses
        data = " to ".join(" ".join(addresses.get(name, [])) for name in ("train", "val"))
        rows.append([place, f"`{result.cell}`", result.scale, data, score])
    head = ["line", "cell", "scale", "data", "AP50, area"]
    body = markdown_table(head, rows)
    return f"## Lines on other data\n\nThe tables above do not contain these lines.\n\n{body}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(escape_markdown(cell) for cell in line) + " |" for line in lines
    )


def escape_markdown(text: str) -> str:
    """Escape a text, so that it cannot break a table or open a tag."""
    for sign, escape in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(sign, escape)
    return text
