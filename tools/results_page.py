"""Write docs/results.md from the lines in results/.

    python tools/results_page.py

The same lines give the same page. The tables are those of `boxmend bench table`, with standard
errors, and every row names its lines. The page includes `results/tried.md`, if there is one, and
the section about data and weights of `results/README.md`. It shows the pictures in
docs/images/results/CELL/, copied from the artifacts of that cell, and two tables as drawings in
docs/images/results/*.svg.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from boxmend.bench.grids.cells import Cell, list_table_cells
from boxmend.bench.grids.chart import draw_svg
from boxmend.bench.grids.comparability import find_differences
from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.priorities import PRIORITIES, REFERENCE_METHODS, priority
from boxmend.bench.grids.results import Result, effective_results, read_results
from boxmend.bench.grids.tables import make_table, select_results
from boxmend.bench.grids.targets import evaluate_targets
from results_sections import (
    MENDING_TABLES,
    Lines,
    cost,
    escape_markdown,
    index,
    markdown_table,
    mending,
    other_lines,
    pictures,
    rates,
)
from results_tables import format_figure, format_metrics, format_share, format_table
from results_trainers import TRAINERS, index_other_trainer, other_trainers

PROJECT = Path(__file__).parent.parent
PAGE = PROJECT / "docs" / "results.md"
SCALE = "voc320"
OTHER_TRAINERS_LINK = "[Other trainers](#mending-in-other-trainers) have tables of their own."
WEIGHTS_LINK = "#data-and-weights"
DATA_HEADING = "## Data and weights"
SPLITS = ("trainval", "test")  # of the final comparison; other splits are for tuning
SEEDS = (0, 1, 2)
MAIN = replace(LAYOUTS["core"], only={"label0-box0": ("clean", "mend")})
"""The table `core` with clean data."""
CHARTS = {"core": MAIN, "box-noise": LAYOUTS["box-noise"]}
"""Tables that the page also shows as charts."""
FURTHER_TABLES = [name for name in LAYOUTS if name not in ("core", "coco", *MENDING_TABLES)]
EXPLANATIONS = {
    "equal-footing": """The main table compares methods as they are published, and they differ in
more than the method: only the final model of `mend` has averaged weights, and `mend-paper` has the
recipe of its paper (difficult objects as background, L1 box loss, RPN threshold 0.3, no limit on
gradients) while `baseline` and `clean` have the common one. This table separates these parts from
the methods: `baseline`, `clean` and the others with averaged weights, `baseline` and `clean` with
the published recipe, and `mend-paper` with the common recipe. Below "Won back", a name in
parentheses stands for the references: the same trainings are compared with `baseline` and `clean`
of that kind. Three differences remain: `mend-paper` and `ca-bbc` are given the true noise rates,
only `mend` has the prescreen, and only the settings of `mend` were chosen at these noises.""",
}
"""Why a further table exists, by its name."""
PAPER_CONDITIONS = {
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
    """Return the charts of the page by their paths under docs/."""
    lines = _effective_lines(_final_lines(_read_lines(project / "results")))
    return {
        _chart_path(name): draw_svg(make_table(layout, lines.results))
        for name, layout in CHARTS.items()
    }


def page(project: Path) -> str:
    """Return the page for the results in a project folder."""
    all_lines = _read_lines(project / "results")
    final = _final_lines(all_lines)
    lines = _effective_lines(final)
    by_trainer = _group_by_trainer(all_lines)
    lines_by_trainer = {scale: _effective_lines(group) for scale, group in by_trainer.items()}
    trainers = other_trainers(lines_by_trainer)
    other_data = [
        (place, result)
        for place, result in all_lines
        if not (_is_final(result) or _is_of_trainer(result))
    ]
    tried = project / "results" / "tried.md"
    parts = [
        _opening(lines),
        OTHER_TRAINERS_LINK if trainers else "",
        _targets(lines),
        _missing(lines),
        _differences(lines),
        _accuracy(lines),
        *_further_tables(lines),
        mending(lines),
        rates(lines),
        cost(lines),
        trainers,
        pictures(project),
        _adapt_links(tried.read_text(encoding="utf-8")) if tried.is_file() else "",
        _data_section(project / "results" / "README.md"),
        index(final, lines),
        *(
            index_other_trainer(scale, group, lines_by_trainer[scale])
            for scale, group in by_trainer.items()
        ),
        other_lines(other_data),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _read_lines(folder: Path) -> list[tuple[str, Result]]:
    """Read the results of a folder, each with its place FILE:LINE."""
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        content = read_results(path)
        if content.warnings:
            raise SystemExit("\n".join(content.warnings))
        pairs = zip(content.numbers, content.results, strict=True)
        lines += [(f"{path.stem}:{number}", result) for number, result in pairs]
    return lines


def _final_lines(lines: Sequence[tuple[str, Result]]) -> list[tuple[str, Result]]:
    return [(place, result) for place, result in lines if _is_final(result)]


def _is_final(result: Result) -> bool:
    """Return whether a result belongs to the final comparison, by its scale and splits."""
    return result.scale == SCALE and _has_final_splits(result)


def _is_of_trainer(result: Result) -> bool:
    """Return whether a result belongs to the comparison of other trainers."""
    return result.scale in TRAINERS and _has_final_splits(result)


def _group_by_trainer(
    lines: Sequence[tuple[str, Result]],
) -> dict[str, list[tuple[str, Result]]]:
    """Return the lines of other trainers by scale, without trainers that have no line."""
    groups = {
        scale: [
            (place, result)
            for place, result in lines
            if result.scale == scale and _is_of_trainer(result)
        ]
        for scale in TRAINERS
    }
    return {scale: group for scale, group in groups.items() if group}


def _has_final_splits(result: Result) -> bool:
    addresses = result.data.addresses
    data = [address for name in ("train", "val") for address in addresses.get(name, [])]
    splits = tuple(address.rpartition(":")[2] for address in data)
    return splits == SPLITS


def _effective_lines(final: Sequence[tuple[str, Result]]) -> Lines:
    """Select the lines that count: the last one of each cell, without failed ones."""
    results = [
        result
        for result in effective_results(result for _, result in final)
        if result.error is None
    ]
    places = {
        result.cell: place
        for place, result in final
        if any(result is effective for effective in results)
    }
    return Lines(tuple(results), places)


def _adapt_links(text: str) -> str:
    """Turn the links of a file in results/ into those of a page in docs/."""
    return text.strip().replace("](../docs/", "](")


def _opening(lines: Lines) -> str:
    counts = _count_by_priority(lines).items()
    shares = [f"{done} of {number} with priority {name}" for name, (done, number) in counts]
    return f"""<!-- written by tools/results_page.py from results/; change those instead -->

# Results on photographs

This page repeats the paper's comparison on VOC 2007 at 320 pixels, trained on trainval and
scored on test, on one GPU, with [`boxmend bench run`](tables.md#on-photographs). Each figure
comes from lines of the files in `results/`; each row names them as FILE:LINES, and they are
[listed below](#lines).

Figures are percentages: mean ± standard error over seeds (number of seeds) [published figure]. A
single seed has no standard error; differences below 1.5 are not significant then.

{_describe_versions(lines)}

Trainings so far: {", ".join(shares)} ([priorities](tables.md#in-several-sittings)).
Empty cells were not run, and nothing was run on COCO. Earlier
[single trainings](training.md#figures) have no lines and are not part of this page."""


def _describe_versions(lines: Lines) -> str:
    """Say which figures come from lines of different versions of boxmend."""
    unknown = sum(not result.code for result in lines.results)
    return f"""† marks a mean over lines of different versions of boxmend; [Lines](#lines) gives the
version of each line. {unknown} of the {len(lines.results)} lines that count do not record it and
are taken as one version. Shares, targets and costs use lines of all versions."""


def _count_by_priority(lines: Lines) -> dict[int, tuple[int, int]]:
    """Return the numbers of finished cells and of all cells for each priority."""
    counts = dict.fromkeys(PRIORITIES, (0, 0))
    for cell in _all_cells():
        done, number = counts[priority(cell)]
        counts[priority(cell)] = done + (cell.name in lines.places), number + 1
    return counts


def _all_cells() -> list[Cell]:
    """List the cells of all tables but COCO's: three seeds of the reference methods, else one."""
    cells: dict[Cell, None] = {}  # in order, without duplicates
    for name in LAYOUTS:
        if name != "coco":
            cells |= dict.fromkeys(list_table_cells(LAYOUTS[name], (0,)))
    further = [cell for cell in list_table_cells(LAYOUTS["core"], SEEDS) if cell.seed]
    cells |= dict.fromkeys(cell for cell in further if cell.method in REFERENCE_METHODS)
    return list(cells)


def _targets(lines: Lines) -> str:
    rows = {True: list[list[str]](), False: list[list[str]]()}
    for target in evaluate_targets(lines.results):
        row = [target.verdict, target.what, target.needed, target.measured]
        rows[target.is_goal].append([*row, lines.format_places(target.cells)])
    head = ["", "what", "needed", "measured", "lines"]
    return f"""## Targets

AP50 by the area rule, unless a row says otherwise; means over three seeds. "So far" marks a mean
over fewer.

{markdown_table(head, rows[False])}

Further goals:

{markdown_table(head, rows[True])}"""


def _missing(lines: Lines) -> str:
    parts = []
    *first, last = PRIORITIES
    for rank in first:
        rows = _missing_methods(lines, rank)
        if rows:
            body = markdown_table(["noise", "methods, with the seeds not run"], rows)
            parts.append(f"Trainings with priority {rank} that were not run:\n\n{body}")
        else:
            parts.append(f"All trainings with priority {rank} were run.")
    incomplete = _incomplete_tables(lines)
    if incomplete:
        body = markdown_table(["table", "trainings", "run"], incomplete)
        parts.append(f"Trainings with priority {last}, by table:\n\n{body}")
    return "\n\n".join(["## What is missing", *parts])


def _incomplete_tables(lines: Lines) -> list[list[str]]:
    """List the tables whose cells of the last priority were not all run, with their numbers."""
    rows = []
    for name in FURTHER_TABLES:
        seed_0 = list_table_cells(LAYOUTS[name], (0,))
        cells = [cell for cell in seed_0 if priority(cell) == PRIORITIES[-1]]
        done = [cell for cell in cells if cell.name in lines.places]
        if len(done) < len(cells):
            title = f"{LAYOUTS[name].title} (`{name}`)"
            rows.append([title, str(len(cells)), str(len(done))])
    return rows


def _missing_methods(lines: Lines, rank: int) -> list[list[str]]:
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


def _differences(lines: Lines) -> str:
    ours = {name: _join_conditions(lines, getter) for name, getter in _OUR_CONDITIONS.items()}
    rows = [[name, ours[name], paper] for name, paper in PAPER_CONDITIONS.items()]
    notes = [
        f"- The lines differ in {escape_markdown(difference.describe())}."
        for difference in find_differences(lines.results)
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


_OUR_CONDITIONS: dict[str, Callable[[Result], str]] = {
    "trained on": lambda result: "VOC 2007 trainval, 5,011 images",
    "scored on": lambda result: "VOC 2007 test, 4,952 images",
    "images": lambda result: f"{result.settings.get('image_size')} pixels, WebP of quality 60",
    "initial weights": lambda result: (
        f"the same network, from another training ([file]({WEIGHTS_LINK}))"
    ),
    "schedule": lambda result: (
        f"{result.settings.get('epochs')} epochs, batch size {result.settings.get('batch_size')}, "
        f"learning rate {result.settings.get('optimisation', {}).get('lr')}"
    ),
    "runs": lambda result: "the numbers in parentheses",
    "rule of AP50": lambda result: "both rules, in separate tables",
    "clean reference": lambda result: "`baseline` on clean annotations",
}


def _data_section(path: Path) -> str:
    """Return the section about data and weights from results/README.md, or nothing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, heading, body = text.partition(DATA_HEADING)
    return (heading + body).strip()


def _join_conditions(lines: Lines, getter: Callable[[Result], str]) -> str:
    """Join the different values of a condition over all results that are not variants."""
    plain = [result for result in lines.results if not result.variant]
    return " or ".join(sorted({getter(result) for result in plain})) or "nothing run yet"


def _accuracy(lines: Lines) -> str:
    area = make_table(MAIN, lines.results)
    points = make_table(MAIN, lines.results, "voc_ap50_11point" if area.results else None)
    return f"""## Accuracy

{_picture("core")}

AP50 by the area rule. The paper's figures use the 11-point rule.

{format_table(area, lines, format_figure)}

AP50 by the 11-point rule, as in the paper:

{format_table(points, lines, format_figure)}

Share of the lost accuracy that is recovered, by the area rule: (method - baseline) / (clean -
baseline), over the seeds that all three have; the paper's share in brackets. Here and in further
tables, a dash means that the noise costs less than one point.

{format_table(area, lines, format_share, is_share=True)}

### AP and AP75

Noisy boxes cost more by COCO's AP, the mean over IoU limits from 0.5 to 0.95, and by AP75 than by
AP50. Earlier versions of this page left out both, although the lines have them. AP50 is by the
area rule; "won back" is the share of the lost accuracy that is recovered.

{format_metrics(MAIN, lines) or "No line has AP yet."}"""


def _further_tables(lines: Lines) -> list[str]:
    """Return the tables with lines that the main one does not have, and the names of the rest.

    A table with an explanation is included as soon as it has any line.
    """
    main_cells = {result.cell for result in select_results(MAIN, lines.results)}
    parts, empty = [], []
    for name in FURTHER_TABLES:
        results = select_results(LAYOUTS[name], lines.results)
        is_explained = bool(results) and name in EXPLANATIONS
        if not is_explained and not any(result.cell not in main_cells for result in results):
            empty.append(name)
            continue
        table = make_table(LAYOUTS[name], lines.results)
        picture = f"{_picture(name)}\n\n" if name in CHARTS else ""
        picture += f"{EXPLANATIONS[name]}\n\n" if name in EXPLANATIONS else ""
        body = format_table(table, lines, format_figure)
        parts.append(f"### {LAYOUTS[name].title}\n\n{picture}{body}")
        if LAYOUTS[name].compare == "share":
            body = format_table(table, lines, format_share, is_share=True)
            parts.append(f"Won back:\n\n{body}")
        metrics = format_metrics(LAYOUTS[name], lines, without=main_cells)
        if metrics:
            parts.append(
                f"With AP and AP75, where it is not in the table of all methods:\n\n{metrics}"
            )
    if parts:
        parts.insert(0, "## Further tables")
    if empty:
        parts.append(f"These tables have no further trainings: {', '.join(empty)}.")
    return parts


def _picture(name: str) -> str:
    caption = "Share of the lost accuracy that each method wins back, here and as published"
    return f"![{caption}]({_chart_path(name)})"


def _chart_path(name: str) -> str:
    return f"images/results/{name}.svg"


if __name__ == "__main__":
    PAGE.write_text(page(PROJECT), encoding="utf-8")
    for path, content in charts(PROJECT).items():
        (PROJECT / "docs" / path).write_bytes(content)
