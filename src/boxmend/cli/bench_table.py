"""`boxmend bench table`: the results of a grid next to the published ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, say
from boxmend.data.files.atomic import open_atomic
from boxmend.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from boxmend.bench.grids.tables import GridTable

app = App(name="table", usage="boxmend bench table [OPTIONS] [TABLE]")


@Parameter(name="*")
@dataclass(frozen=True)
class ResultOptions:
    """The results to use."""

    scale: Annotated[
        str | None,
        Parameter(
            help="Scale of the trainings; needed only if there are results of several scales."
        ),
    ] = None
    results: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Result files, or folders with such files; by default bench/SCALE/results.jsonl.",
            negative="",
        ),
    ] = ()
    where: Annotated[
        tuple[str, ...],
        Parameter(
            help="Use only results with this value: KEY=VALUE, like versions.torch=2.11.0 or "
            "settings.epochs=12; may be repeated.",
            negative="",
        ),
    ] = ()
    mixed: Annotated[
        bool,
        Parameter(
            help="Show results in one table even if their settings, data, versions or hardware "
            "differ; notes list the differences.",
            negative="",
        ),
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions:
    """The score that the table shows, and the files to write it to."""

    metric: Annotated[
        str | None,
        Parameter(
            help="Score to compare by: voc_ap50_area by default, or voc_ap50_11point, coco_ap, "
            "coco_ap50, coco_ap75 and so on."
        ),
    ] = None
    out: Annotated[
        tuple[Path, ...],
        Parameter(
            help="File to also write the table to: .csv, .html, .json, .md, or .svg for a "
            "picture; may be repeated.",
            negative="",
        ),
    ] = ()
    overwrite: Annotated[bool, Parameter(help="Replace existing files of --out.", negative="")] = (
        False
    )


@app.default
def table(
    name: Annotated[
        str | None,
        Parameter(name="TABLE", help="Name of the table; without it, boxmend lists all tables."),
    ] = None,
    /,
    *,
    choice: ResultOptions | None = None,
    options: TableOptions | None = None,
    json: Json = False,
) -> int:
    """Show the results of `boxmend bench run` as a Markdown table.

    The table has our mean and deviation over seeds, with the best in bold, the published figure in
    brackets, and the share of the lost accuracy that each method wins back. Empty cells were not
    run. Results that differ in settings, data, versions or hardware are refused without --mixed.

    Example: boxmend bench table core --results results --out core.svg
    """
    from boxmend.bench.grids.collecting import TableRequest, collect_table
    from boxmend.bench.grids.layouts import LAYOUTS, get_layout
    from boxmend.bench.grids.rendering import render_markdown, to_plain

    if name is None:
        rows = [(table_layout.name, table_layout.title) for table_layout in LAYOUTS.values()]
        print_table(("table", "what it shows"), rows)
        return ExitStatus.FINE
    choice, options = choice or ResultOptions(), options or TableOptions()
    table_layout = get_layout(name)
    writers = _writers(options)
    table, warnings = collect_table(
        table_layout,
        TableRequest(choice.results, choice.scale, choice.where, options.metric, choice.mixed),
    )
    for warning in warnings:
        say(f"warning: {warning}")
    for path, write in writers.items():
        with open_atomic(path) as file:
            file.write(write(table))
        say(f"wrote {path}")
    if json:
        print_json(to_plain(table))
    else:
        print(render_markdown(table), end="")
    return ExitStatus.FINE


def _writers(options: TableOptions) -> "dict[Path, Callable[[GridTable], bytes]]":
    """Return the writer of each file of --out; raise a UsageError for an invalid one."""
    from boxmend.bench.grids.chart import draw_svg
    from boxmend.bench.grids.rendering import render_csv, render_html, render_json, render_markdown

    kinds: dict[str, Callable[[GridTable], bytes]] = {
        ".csv": render_csv,
        ".html": render_html,
        ".json": render_json,
        ".md": lambda table: render_markdown(table).encode("utf-8", "backslashreplace"),
        ".svg": draw_svg,
    }
    for path in options.out:
        if path.suffix not in kinds:
            raise UsageError(f"--out {path}: expected a name that ends in {', '.join(kinds)}")
        if path.exists() and not options.overwrite:
            raise UsageError(f"--out {path}: the file exists; choose a new one, or add --overwrite")
    return {path: kinds[path.suffix] for path in options.out}
