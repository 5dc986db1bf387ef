"""Write docs/results.md from the lines in results/.

    python tools/results_page.py

The same lines give the same page. The tables are those of `boxmend bench table`, with standard
errors, and every row names its lines. The page includes `results/tried.md`, if there is one, and
the section about data and weights of `results/README.md`. It shows the pictures in
docs/images/results/CELL/, copied from the artifacts of that cell, and two tables as drawings in
docs/images/results/*.svg.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from boxmend.bench.grids.cells import Cell, table_cells
from boxmend.bench.grids.chart import svg
from boxmend.bench.grids.comparability import find_differences
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.priorities import PRIORITIES, REFERENCE_METHODS, priority
from boxmend.bench.grids.results import Result, effective_results, read
from boxmend.bench.grids.tables import Table, TableEntry, make_table, select_results
from boxmend.bench.grids.targets import evaluate_targets
from boxmend.bench.grids.wording import DASH, format_percent
from results_sections import (
    OF_MENDING,
    Lines,
    cost,
    escaped,
    index,
    markdown_table,
    mending,
    others,
    pictures,
    rates,
)

PROJECT = Path(__file__).parent.parent
PAGE = PROJECT / "docs" / "results.md"
SCALE = "voc320"
WEIGHTS = "#data-and-weights"
ABOUT_DATA = "## Data and weights"
SPLITS = ("trainval", "test")  # of the final comparison; all else is tuning
SEEDS = (0, 1, 2)
MAIN = replace(LAYOUTS["core"], only={"label0-box0": ("clean", "mend")})
"""The core, with all that was run in its settings."""
DRAWN = {"core": MAIN, "box-noise": LAYOUTS["box-noise"]}
"""Tables that are shown as pictures, too."""
OTHERS = [name for name in LAYOUTS if name not in ("core", "coco", *OF_MENDING)]
PAPER = {
    "trained on": "VOC 2007+2012 trainval, 16,551 images",
    "scored on": "VOC 2007 test, 4,952 images",
    "images": "600/1000 pixels",
    "initial weights": "ResNet-50 trained on ImageNet classification",
    "schedule": "mmdetection's, batch size 2, learning rate 0.01",
    "runs": "one per setting",
    "rule of AP50": "11 points",
    "clean reference": "none; 79.5 is mmdetection's published model",
}


def charts(project: Path) -> dict[str, bytes]:
    """Give the pictures of the page by their places under docs/."""
    lines = _counting(_final(_every(project / "results")))
    return {_chart(name): svg(make_table(one, lines.results)) for name, one in DRAWN.items()}


def page(project: Path) -> str:
    """Give the page for the lines under a folder."""
    every = _every(project / "results")
    final = _final(every)
    lines = _counting(final)
    rest = [(place, one) for place, one in every if not _is_final(one)]
    tried = project / "results" / "tried.md"
    parts = [
        _opening(lines),
        _bars(lines),
        _missing(lines),
        _differs(lines),
        _accuracy(lines),
        *_further(lines),
        mending(lines),
        rates(lines),
        cost(lines),
        pictures(project),
        _as_on_the_page(tried.read_text(encoding="utf-8")) if tried.is_file() else "",
        _about_data(project / "results" / "README.md"),
        index(final, lines),
        others(rest),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _every(folder: Path) -> list[tuple[str, Result]]:
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        told = read(path)
        if told.warnings:
            raise SystemExit("\n".join(told.warnings))
        pairs = zip(told.numbers, told.results, strict=True)
        found += [(f"{path.stem}:{number}", one) for number, one in pairs]
    return found


def _final(every: Sequence[tuple[str, Result]]) -> list[tuple[str, Result]]:
    return [(place, one) for place, one in every if _is_final(one)]


def _is_final(one: Result) -> bool:
    told = [address for name in ("train", "val") for address in one.data.addresses.get(name, [])]
    ends = tuple(address.rpartition(":")[2] for address in told)
    return one.scale == SCALE and ends == SPLITS


def _counting(final: Sequence[tuple[str, Result]]) -> Lines:
    kept = [one for one in effective_results(one for _, one in final) if one.error is None]
    places = {one.cell: place for place, one in final if any(one is each for each in kept)}
    return Lines(tuple(kept), places)


def _as_on_the_page(text: str) -> str:
    """Turn the links of a file in results/ into those of a page in docs/."""
    return text.strip().replace("](../docs/", "](")


def _opening(lines: Lines) -> str:
    counts = _counts(lines).items()
    shares = [f"{done} of {number} with priority {name}" for name, (done, number) in counts]
    return f"""<!-- written by tools/results_page.py from results/; change those instead -->

# Results on photographs

This page repeats the paper's comparison on VOC 2007 at 320 pixels, trained on trainval and
scored on test, on one GPU, with [`boxmend bench run`](tables.md#on-photographs). Each figure
comes from lines of the files in `results/`; each row names them as FILE:LINES, and they are
[listed below](#lines).

Figures are percentages: mean ± standard error over seeds (number of seeds) [published figure]. A
single seed has no standard error; differences below 1.5 are not significant then.

Trainings so far: {", ".join(shares)} ([priorities](tables.md#in-several-sittings)).
Empty cells were not run, and nothing was run on COCO. Earlier
[single trainings](training.md#figures) have no lines and are not part of this page."""


def _counts(lines: Lines) -> dict[int, tuple[int, int]]:
    counts = dict.fromkeys(PRIORITIES, (0, 0))
    for cell in _all_cells():
        done, number = counts[priority(cell)]
        counts[priority(cell)] = done + (cell.name in lines.places), number + 1
    return counts


def _all_cells() -> list[Cell]:
    """List the cells of all tables but COCO's: three seeds of the reference methods, else one."""
    found: dict[Cell, None] = {}
    for name in LAYOUTS:
        if name != "coco":
            found |= dict.fromkeys(table_cells(LAYOUTS[name], (0,)))
    further = [one for one in table_cells(LAYOUTS["core"], SEEDS) if one.seed]
    found |= dict.fromkeys(one for one in further if one.method in REFERENCE_METHODS)
    return list(found)


def _bars(lines: Lines) -> str:
    rows = {True: list[list[str]](), False: list[list[str]]()}
    for bar in evaluate_targets(lines.results):
        told = [bar.verdict, bar.what, bar.needed, bar.measured]
        rows[bar.is_goal].append([*told, lines.named(bar.cells)])
    head = ["", "what", "needed", "measured", "lines"]
    return f"""## Targets

AP50 by the area rule, mean over three seeds; "so far" marks a mean over fewer.

{markdown_table(head, rows[False])}

Further goals:

{markdown_table(head, rows[True])}"""


def _missing(lines: Lines) -> str:
    parts = []
    *first, last = PRIORITIES
    for one in first:
        rows = _not_run(lines, one)
        if rows:
            body = markdown_table(["noise", "methods, with the seeds not run"], rows)
            parts.append(f"Trainings with priority {one} that were not run:\n\n{body}")
        else:
            parts.append(f"All trainings with priority {one} were run.")
    left = _left_of_tables(lines)
    if left:
        body = markdown_table(["table", "trainings", "run"], left)
        parts.append(f"Trainings with priority {last}, by table:\n\n{body}")
    return "\n\n".join(["## What is missing", *parts])


def _left_of_tables(lines: Lines) -> list[list[str]]:
    """List the tables whose cells of the last priority were not all run, with their numbers."""
    rows = []
    for name in OTHERS:
        seed_0 = table_cells(LAYOUTS[name], (0,))
        cells = [cell for cell in seed_0 if priority(cell) == PRIORITIES[-1]]
        done = [cell for cell in cells if cell.name in lines.places]
        if len(done) < len(cells):
            title = f"{LAYOUTS[name].title} (`{name}`)"
            rows.append([title, str(len(cells)), str(len(done))])
    return rows


def _not_run(lines: Lines, rank: int) -> list[list[str]]:
    """List the methods of a priority that were not run, by noise."""
    missing: dict[str, dict[str, list[int]]] = {}
    for cell in _all_cells():
        if priority(cell) == rank and cell.name not in lines.places:
            methods = missing.setdefault(cell.noise_name, {})
            methods.setdefault(cell.method_name, []).append(cell.seed)
    rows = []
    for noise, methods in sorted(missing.items()):
        names = [f"`{name}` {', '.join(map(str, seeds))}" for name, seeds in methods.items()]
        rows.append([noise, "; ".join(names)])
    return rows


def _differs(lines: Lines) -> str:
    told = {one: _several(lines, getter) for one, getter in _OURS.items()}
    rows = [[name, told[name], theirs] for name, theirs in PAPER.items()]
    notes = [
        f"- The lines differ in {escaped(one.told())}." for one in find_differences(lines.results)
    ]
    return "\n\n".join(
        [
            "## What differs from the paper",
            markdown_table(["", "here", "in the paper"], rows),
            "Methods that need the noise rates are given the true ones, as in the paper; `mend` is "
            "given none.",
            *(["\n".join(notes)] if notes else []),
        ]
    )


_OURS: dict[str, Callable[[Result], str]] = {
    "trained on": lambda one: "VOC 2007 trainval, 5,011 images",
    "scored on": lambda one: "VOC 2007 test, 4,952 images",
    "images": lambda one: f"{one.settings.get('image_size')} pixels, WebP of quality 60",
    "initial weights": lambda one: f"the same network, from another training ([file]({WEIGHTS}))",
    "schedule": lambda one: (
        f"{one.settings.get('epochs')} epochs, batch size {one.settings.get('batch_size')}, "
        f"learning rate {one.settings.get('optimisation', {}).get('lr')}"
    ),
    "runs": lambda one: "the numbers in parentheses",
    "rule of AP50": lambda one: "both rules, in separate tables",
    "clean reference": lambda one: "`baseline` on clean annotations",
}


def _about_data(path: Path) -> str:
    """Return the section about data and weights from results/README.md, or nothing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, heading, body = text.partition(ABOUT_DATA)
    return (heading + body).strip()


def _several(lines: Lines, getter: Callable[[Result], str]) -> str:
    plain = [one for one in lines.results if not one.variant]
    return " or ".join(sorted({getter(one) for one in plain})) or "nothing run yet"


def _accuracy(lines: Lines) -> str:
    area = make_table(MAIN, lines.results)
    points = make_table(MAIN, lines.results, "voc_ap50_11point" if area.results else None)
    return f"""## Accuracy

{_picture("core")}

AP50 by the area rule. The paper's figures use the 11-point rule.

{_squares(area, lines, _figure)}

AP50 by the 11-point rule, as in the paper:

{_squares(points, lines, _figure)}

Share of the lost accuracy that is won back, by the area rule: (method - baseline) / (clean -
baseline), over the seeds that all three have; the paper's share in brackets. Here and in further
tables, a dash means that the noise costs less than one point.

{_squares(area, lines, _share, is_share=True)}"""


def _further(lines: Lines) -> list[str]:
    """Tables with lines that the main one does not have, and the names of the rest."""
    own = {one.cell for one in select_results(MAIN, lines.results)}
    parts, empty = [], []
    for name in OTHERS:
        used = select_results(LAYOUTS[name], lines.results)
        if not any(one.cell not in own for one in used):
            empty.append(name)
            continue
        made = make_table(LAYOUTS[name], lines.results)
        picture = f"{_picture(name)}\n\n" if name in DRAWN else ""
        parts.append(f"### {LAYOUTS[name].title}\n\n{picture}{_squares(made, lines, _figure)}")
        if LAYOUTS[name].compare == "share":
            parts.append(f"Won back:\n\n{_squares(made, lines, _share, is_share=True)}")
    if parts:
        parts.insert(0, "## Further tables")
    if empty:
        parts.append(f"These tables have no further trainings: {', '.join(empty)}.")
    return parts


def _squares(
    made: Table, lines: Lines, words: Callable[[TableEntry], str], *, is_share: bool = False
) -> str:
    rows = []
    for row, line in made.lines():
        told = [words(square) for square in line]
        if is_share and not any(told):
            continue
        cells = _compared(made, line) if is_share else [one for each in line for one in each.cells]
        rows.append([f"`{row.name}`", *told, lines.named(cells)])
    if not rows:
        return "Nothing to compare yet."
    titles = [one.title for one in made.layout.columns]
    return markdown_table(["", *titles, "lines"], rows)


def _compared(made: Table, line: Sequence[TableEntry]) -> list[str]:
    """The cells that shares are made of: those of the row, of baseline and of clean."""
    sides = [other for row, other in made.lines() if row.name in ("baseline", "clean")]
    return [
        cell
        for number, square in enumerate(line)
        if square.gain is not None
        for one in (square, *(side[number] for side in sides))
        for cell in one.cells
        if int(cell.rpartition("-")[2]) in square.gain.seeds
    ]


def _figure(square: TableEntry) -> str:
    paper = "" if square.paper is None else f"[{100 * square.paper:.1f}]"
    if square.ours is None:
        return paper
    ours = square.ours
    text = format_percent(ours.mean)
    text = f"**{text}**" if square.is_best else text
    number = len(ours.seeds)
    if ours.deviation is not None:
        text += f" ± {format_percent(ours.deviation / math.sqrt(number))}"
    return f"{text} ({number}) {paper}".rstrip()


def _share(square: TableEntry) -> str:
    paper = "" if square.paper_gain is None else f"[{100 * square.paper_gain:.0f}]"
    if square.gain is None or not square.gain.seeds:
        return paper
    if square.gain.value is None:
        return f"{DASH} {paper}".rstrip()
    error = "" if square.gain.error is None else f" ± {format_percent(square.gain.error)}"
    return f"{format_percent(square.gain.value)}{error} ({len(square.gain.seeds)}) {paper}".rstrip()


def _picture(name: str) -> str:
    words = "Share of the lost accuracy that each method wins back, here and as published"
    return f"![{words}]({_chart(name)})"


def _chart(name: str) -> str:
    return f"images/results/{name}.svg"


if __name__ == "__main__":
    PAGE.write_text(page(PROJECT), encoding="utf-8")
    for place, content in charts(PROJECT).items():
        (PROJECT / "docs" / place).write_bytes(content)
