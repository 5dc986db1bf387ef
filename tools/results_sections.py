"""Sections of docs/results.md that go line by line; tools/results_page.py puts them together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxmend.bench.grids.published_tables import get_published
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import summarize_seeds
from boxmend.bench.grids.table_spec import noise_rate
from boxmend.bench.grids.tables import get_figure
from boxmend.bench.grids.wording import format_percent

OF_MENDING = ("refined-boxes", "refined-labels")
"""Published tables about the mending."""
PICTURES = {
    "losses.svg": "Losses of right and wrong labels in the last epoch",
    "before-after.jpg": "The noisy annotations (top) and the mended ones (bottom); the truth is "
    "white, wrong labels are red",
}
PICTURED = ("label40-box40-mend-0", "label40-box40-mend-paper-0")
MENDING = {
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
"""Columns of the mending, and where their figures stand in a line."""
MENDLESS = ("baseline", "two-stage")
"""Methods that believe what they are given."""
PUBLISHED_MENDING = {"CorLoc raw": "raw", "matched": "matched", "final": "final"} | {
    name: name for name in ("TP", "TN", "FP", "FN", "N*")
}


@dataclass(frozen=True)
class Lines:
    """The lines that count, by cell, and where they stand."""

    results: tuple[Result, ...]
    places: Mapping[str, str]
    """By cell: FILE:LINE."""

    def named(self, cells: Iterable[str]) -> str:
        """Name the lines of cells by file, like voc320:1, 4-6."""
        by_file: dict[str, list[int]] = {}
        for file, number in sorted({_parted(self.places[one]) for one in cells}):
            by_file.setdefault(file, []).append(number)
        return "; ".join(f"{file}:{_ranges(numbers)}" for file, numbers in by_file.items())


def _parted(place: str) -> tuple[str, int]:
    name, _, number = place.rpartition(":")
    return name, int(number)


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in their order, neighbours joined."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in groups)


def mending(lines: Lines) -> str:
    """How well annotations were mended, by noise and method."""
    groups = _groups(one for one in lines.results if one.mending and one.method not in MENDLESS)
    rows = []
    for (noise, method), here in sorted(groups.items(), key=lambda item: item[0][0]):
        told = [_mean(here, place) + _paper(noise, method, name) for name, place in MENDING.items()]
        rows.append([noise, f"`{method}`", *told, lines.named(one.cell for one in here)])
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
    return f"{text}\n\n{markdown_table(['noise', 'method', *MENDING, 'lines'], rows)}"


def _groups(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Results by noise and method, with the variant, in the order of their lines."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        groups.setdefault(_parts(one), []).append(one)
    return groups


def _parts(one: Result) -> tuple[str, str]:
    """The noise, and the method with its variant, by the name of the cell."""
    stem = one.cell.rpartition("-")[0]
    at = stem.index(f"-{one.method}")
    return stem[:at], stem[at + 1 :]


def _mean(results: Sequence[Result], place: str) -> str:
    told = {one.seed: value for one in results if (value := get_figure(one, place)) is not None}
    found = summarize_seeds(told)
    return "" if found is None else format_percent(found.mean)


def _paper(noise: str, method: str, name: str) -> str:
    if name not in PUBLISHED_MENDING:
        return ""
    for table_name in OF_MENDING:
        records = get_published(table_name)
        told = records and records.fraction(f"{method}: {PUBLISHED_MENDING[name]}", noise)
        if told:
            return f" [{100 * told:.1f}]"
    return ""


def rates(lines: Lines) -> str:
    """What `mend` took the noise for, line by line."""
    rows = []
    for one in lines.results:
        if one.method == "mend" and one.estimates and not one.variant:
            true = noise_rate(one.noise.labels), noise_rate(one.noise.boxes)
            told = [_interval(one, name) for name in ("label_noise", "box_noise")]
            given = [f"{100 * rate:g}" for rate in true]
            cells = [f"`{one.cell}`", given[0], told[0], given[1], told[1]]
            rows.append([*cells, lines.named([one.cell])])
    head = ["cell", "labels, true", "estimated", "boxes, true", "estimated", "lines"]
    body = markdown_table(head, rows) if rows else "There are no results of `mend` yet."
    return f"""## Noise rates that `mend` estimates

In percent, with 95 % intervals. The figure for boxes is N, for uniform noise within ± N. For
Gaussian noise the true figure is the standard deviation, which equals that of uniform noise with
an N 1.73 times as large.

{body}"""


def _interval(one: Result, name: str) -> str:
    ends = (get_figure(one, f"estimates.{name}{end}") for end in ("", "_low", "_high"))
    told = ["?" if end is None else format_percent(end) for end in ends]
    return told[0] if told[1] == "?" else f"{told[0]} ({told[1]} to {told[2]})"


def cost(lines: Lines) -> str:
    """Seconds and speed, by method."""
    by_method: dict[str, list[Result]] = {}
    for one in lines.results:
        by_method.setdefault(_parts(one)[1], []).append(one)
    rows = []
    for method, here in sorted(by_method.items()):
        speeds = [one.images_per_second for one in here if one.images_per_second]
        speed = f"{sum(speeds) / len(speeds):.0f}" if speeds else ""
        seconds = f"{sum(one.seconds for one in here) / len(here):.0f}"
        hardware = ", ".join(sorted({one.hardware for one in here}))
        cells = lines.named(one.cell for one in here)
        rows.append([f"`{method}`", str(len(here)), seconds, speed, hardware, cells])
    head = ["method", "cells", "seconds a cell", "images/s", "hardware", "lines"]
    return f"""## What it cost

Seconds include training and scoring. Several trainings ran side by side on one GPU, so these
figures do not measure the speed of a method; [this table](methods/index.md#what-they-cost) does.

{markdown_table(head, rows)}"""


def pictures(project: Path) -> str:
    """Figures and pictures that were brought back."""
    parts = ["## Pictures"]
    for cell in PICTURED:
        for name, words in PICTURES.items():
            if (project / "docs" / "images" / "results" / cell / name).is_file():
                parts.append(f"`{cell}`. {words}:\n\n![{words}](images/results/{cell}/{name})")
    if len(parts) == 1:
        parts.append("None yet.")
    return "\n\n".join(parts)


def index(final: Sequence[tuple[str, Result]], lines: Lines) -> str:
    """Every line of the comparison, with its scores."""
    rows = []
    for place, one in final:
        scores = [get_figure(one, f"voc_ap50_{rule}") for rule in ("area", "11point")]
        told = ["" if value is None else f"{100 * value:.2f}" for value in scores]
        counts = lines.places.get(one.cell) == place
        state = "" if counts else "failed" if one.error is not None else "replaced by a later one"
        made_by = [one.hardware, f"torch {one.versions.get('torch', '?')}", one.code]
        started = one.started[:16].replace("T", " ")
        rows.append([place, f"`{one.cell}`", *told, started, *made_by, state])
    head = ["line", "cell", "area", "11 points", "started", "hardware", "versions", "code", ""]
    return f"""## Lines

AP50 by both rules. "Code" is a hash of the source of boxmend; earlier lines do not have it.

{markdown_table(head, rows)}"""


def others(others: Sequence[tuple[str, Result]]) -> str:
    """Lines on other data, as those by which settings were chosen."""
    if not others:
        return ""
    rows = []
    for place, one in others:
        told = [get_figure(one, "voc_ap50_area")]
        data = " to ".join(" ".join(one.data.addresses.get(name, [])) for name in ("train", "val"))
        score = "" if told[0] is None else format_percent(told[0])
        rows.append([place, f"`{one.cell}`", one.scale, data, score])
    head = ["line", "cell", "scale", "data", "AP50, area"]
    body = markdown_table(head, rows)
    return f"## Lines on other data\n\nThe tables above do not contain these lines.\n\n{body}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(escaped(one) for one in line) + " |" for line in lines)


def escaped(text: str) -> str:
    """A text that breaks no table and opens no tag."""
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(sign, written)
    return text
