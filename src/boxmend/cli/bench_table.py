"""`boxmend bench table`: what the cells of a grid came to, beside what was published."""

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
    from boxmend.bench.grids.tables import Table

app = App(name="table", help_format="markdown")


@Parameter(name="*")
@dataclass(frozen=True)
class ResultOptions:
    """Which results."""

    scale: Annotated[
        str | None,
        Parameter(help="Scale of the trainings; needed only where there are results of several."),
    ] = None
    results: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Files of results, or folders with them; bench/SCALE/results.jsonl by default.",
            negative="",
        ),
    ] = ()
    where: Annotated[
        tuple[str, ...],
        Parameter(
            help="Take only results that have a value: PLACE=VALUE, like versions.torch=2.11.0 or "
            "settings.epochs=12.",
            negative="",
        ),
    ] = ()
    mixed: Annotated[
        bool,
        Parameter(
            help="Show results side by side though their settings, data, versions or hardware "
            "differ; notes say in what.",
            negative="",
        ),
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class Shown:
    """What to show."""

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
            help="File to write the table to, besides: .csv, .html, .json, .md, or .svg for a "
            "picture; may be given several times.",
            negative="",
        ),
    ] = ()
    overwrite: Annotated[
        bool, Parameter(help="Replace files of --out that are there already.", negative="")
    ] = False


@app.default
def table(
    name: Annotated[
        str | None, Parameter(help="Name of the table; without it, they are listed.")
    ] = None,
    /,
    *,
    chosen: ResultOptions | None = None,
    shown: Shown | None = None,
    json: Json = False,
) -> int:
    """Show a table of a grid that `boxmend bench run` has run, wholly or in part.

    Markdown on stdout: our mean and deviation over seeds, the best in bold, the published figure
    in brackets, and the share of the lost accuracy that each method wins back. Empty squares were
    not run. Results that differ in settings, data, versions or hardware are not mixed unless
    asked.
    """
    from boxmend.bench.grids.collecting import TableRequest, collect_table
    from boxmend.bench.grids.layouts import LAYOUTS, get_layout
    from boxmend.bench.grids.rendering import markdown, plain

    if name is None:
        print_table(("table", "what it shows"), [(one.name, one.title) for one in LAYOUTS.values()])
        return ExitStatus.FINE
    chosen, shown = chosen or ResultOptions(), shown or Shown()
    asked = get_layout(name)
    writers = _writers(shown)
    choice = TableRequest(chosen.results, chosen.scale, chosen.where, shown.metric, chosen.mixed)
    made, warnings = collect_table(asked, choice)
    for warning in warnings:
        say(f"warning: {warning}")
    for path, write in writers.items():
        with open_atomic(path) as file:
            file.write(write(made))
        say(f"wrote {path}")
    if json:
        print_json(plain(made))
    else:
        print(markdown(made), end="")
    return ExitStatus.FINE


def _writers(shown: Shown) -> "dict[Path, Callable[[Table], bytes]]":
    """What writes each file of --out; what cannot be written is told before anything is read."""
    from boxmend.bench.grids.chart import svg
    from boxmend.bench.grids.rendering import csv_bytes, html, json_bytes, markdown

    kinds: dict[str, Callable[[Table], bytes]] = {
        ".csv": csv_bytes,
        ".html": html,
        ".json": json_bytes,
        ".md": lambda made: markdown(made).encode("utf-8", "backslashreplace"),
        ".svg": svg,
    }
    for path in shown.out:
        if path.suffix not in kinds:
            raise UsageError(f"--out {path}: expected a name that ends in {', '.join(kinds)}")
        if path.exists() and not shown.overwrite:
            raise UsageError(f"--out {path}: exists already; name a new file, or add --overwrite")
    return {path: kinds[path.suffix] for path in shown.out}
