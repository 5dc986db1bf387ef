"""`boxmend bench`: benchmarks of methods, error finders and speed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.bench.speed.choices import SpeedChoices
from boxmend.cli.bench_audit import app as audit_app
from boxmend.cli.bench_audit_suite import app as suite_app
from boxmend.cli.bench_table import app as table_app
from boxmend.cli.options import Data, Json, ReadingOptions
from boxmend.cli.output import print_measurement, print_table, say
from boxmend.errors import ExitStatus, UsageError

MEASURES = {"milliseconds": "time", "images_per_second": "images/s", "peak_bytes": "GPU memory"}
GIB = 2**30
GRID_HELP = {
    "run": """Run the trainings of a table cell by cell; resumable.

A cell is one training with one noise, method and seed. boxmend runs it once, and all tables of the
same scale use its result. Ctrl-C and SIGTERM save checkpoints and stop; the same command continues.
A failed cell is recorded and does not stop the others. `boxmend bench table NAME` shows the
results.

Example: boxmend bench run core --scale smoke
""",
    "cells": """List the cells of a table and their states.

A cell is open, running, stopped, done or failed. Results of --done are matched by the name of the
cell only; `bench run --dry-run` also compares their settings, and their data if you give any.

Example: boxmend bench cells core --scale smoke
""",
}

HELP = """Compare methods and error finders, and measure speed, on your hardware and data.

Example: boxmend bench table
"""

app = App(name="bench", help=HELP)
app.command(table_app)
app.command(audit_app)
app.command(suite_app)
for _name, _help in GRID_HELP.items():  # imported when they are called
    app.command(f"boxmend.cli.bench_run:{_name}_app", name=_name, help=_help)


@app.command(usage="boxmend bench speed [OPTIONS] DATA...")
def speed(
    *data: Data,
    choices: Annotated[SpeedChoices | None, Parameter(name="*")] = None,
    reading: ReadingOptions | None = None,
    out: Annotated[Path | None, Parameter(help="New JSON file to write the figures to.")] = None,
    json: Json = False,
) -> int:
    """Compare the training speed with torchvision's plain recipe.

    Rows: `plain` (a DataLoader decodes and flips), `plain-on-device` (the images are already on the
    GPU), `baseline`, `mend-paper` (mend --preset paper with the same counts), `mend`, and `-eager`
    rows without CUDA graphs. Rows take turns in blocks of steps; the tables show medians. The
    benchmark is made for a GPU. It downloads nothing and leaves no run behind.

    Example: boxmend bench speed data.yaml --sizes 320 --detector resnet18
    """
    if not data:
        raise UsageError("give the dataset to train on: PATH or PATH:SPLIT")
    if out is not None and out.exists():
        raise UsageError(f"--out {out}: the file exists; choose a new one")
    try:
        from boxmend.bench.speed.measuring import measure_speed as measure  # imports torch
    except ModuleNotFoundError as error:
        raise UsageError(
            f"training needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    dataset = (reading or ReadingOptions()).load(data)
    answer = measure(dataset, choices or SpeedChoices(), data, _print_nothing if json else say)
    print_measurement(answer, out, None if json else _print)
    return ExitStatus.FINE


def _print_nothing(text: str) -> None:
    """Ignore a message: --json prints only the figures."""


def _print(answer: dict[str, Any]) -> None:
    """Print the tables, each under its title."""
    facts = answer["facts"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    print(f"{facts['hardware']} ({facts['device']}), {facts['cores']} cores; {versions}")
    print(f"{answer['choices']['detector']}, batches of {answer['choices']['batch_size']}")
    for table in answer["tables"]:
        counts = f"{table['rois']} RoIs and {table['proposals']} proposals"
        _print_title(f"images at {table['image_size']}, {counts} per image")
        _print_rows(("row",), ((name,) for name in table["rows"]), list(table["rows"].values()))
        if table["ratios"]:
            print()
            _print_ratios(table["ratios"])
    _print_stages(answer["stages"])
    if answer["growth"]:
        _print_growth(answer["growth"])
    if answer["side_by_side"]:
        _print_side_by_side(answer["side_by_side"])


def _print_title(title: str) -> None:
    print(f"\n{title}\n")


def _print_rows(
    headers: Sequence[str], names: Iterable[tuple[object, ...]], rows: Sequence[dict[str, Any]]
) -> None:
    lines = [
        (
            *name,
            *(_format(row["milliseconds"], ".2f"), _format(row["images_per_second"], ".1f")),
            *(_gib(row["peak_bytes"]), _gib(row["reserved_bytes"]), row["error"] or ""),
        )
        for name, row in zip(names, rows, strict=True)
    ]
    figures = ("ms per step", "images/s", "peak GiB", "reserved GiB", "error")
    print_table((*headers, *figures), lines)


def _print_ratios(ratios: Sequence[dict[str, Any]]) -> None:
    lines = [
        (ratio["ratio"], MEASURES[ratio["measure"]], f"{ratio['is']:.3f}", ratio["wanted"])
        for ratio in ratios
    ]
    print_table(("ratio", "of", "measured", "target"), lines)


def _print_stages(stages: Sequence[dict[str, Any]]) -> None:
    measured = [row for row in stages if row["shares"]]
    if measured:
        _print_title("share of each stage in a step, without CUDA graphs")
        headers = ("stage", *(f"{row['row']} at {row['image_size']}" for row in measured))
        lines = [
            (stage, *(f"{100 * row['shares'][stage]:.1f} %" for row in measured))
            for stage in measured[0]["shares"]
        ]
        print_table(headers, lines)
    for row in stages:
        if row["error"]:
            say(f"the stages of {row['row']} at {row['image_size']}: {row['error']}")


def _print_growth(growth: dict[str, Any]) -> None:
    for key, what in (("objects", "objects per image"), ("queue", "losses in the queue")):
        _print_title(f"growth with {what}, images at {growth['image_size']}")
        lines = [
            (
                *(row["row"], row["number"], _format(row["milliseconds"], ".2f")),
                *(_format(row["times_the_first"], ".3f"), row["error"] or ""),
            )
            for row in growth[key]
        ]
        print_table(("row", what, "ms per step", "times the first", "error"), lines)
    memory = growth["memory"]
    time = memory["error"] or f"{memory['milliseconds']:.4f} ms"
    share = memory["share"]
    of_a_step = "" if share is None else f", {100 * share:.2f} % of a step"
    print(f"\nmemory across visits takes {time}{of_a_step}")


def _print_side_by_side(rows: Sequence[dict[str, Any]]) -> None:
    _print_title("trainings side by side on one device")
    lines = [
        (
            *(row["row"], row["image_size"], row["jobs"]),
            *(_format(row["images_per_second"], ".1f"), row["error"] or ""),
        )
        for row in rows
    ]
    print_table(("row", "image size", "trainings", "images/s in total", "error"), lines)


def _format(value: float | None, digits: str) -> str:
    return "-" if value is None else format(value, digits)


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / GIB:.2f}"
