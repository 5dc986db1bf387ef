"""`boxmend bench`: measurements to repeat on one's own hardware."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.bench.speed.choices import SpeedChoices
from boxmend.cli.bench_audit import app as audit_app
from boxmend.cli.bench_table import app as table_app
from boxmend.cli.options import Data, Json, ReadingOptions
from boxmend.cli.output import print_measured, print_table, say
from boxmend.errors import ExitStatus, UsageError

MEASURES = {"milliseconds": "time", "images_per_second": "images/s", "peak_bytes": "GPU memory"}
GIB = 2**30
GRIDS = {
    "run": "Run the trainings of a table, cell by cell; called again, it goes on where it was.",
    "cells": "List the cells of a table and how far each is.",
}

app = App(
    name="bench",
    help_format="markdown",
    help="Measure on your own hardware and data. Tables for people, or --json.",
)
app.command(table_app)
app.command(audit_app)
for _name, _words in GRIDS.items():  # imported when they are called
    app.command(f"boxmend.cli.bench_run:{_name}_app", name=_name, help=_words)


@app.command
def speed(
    *data: Data,
    choices: Annotated[SpeedChoices | None, Parameter(name="*")] = None,
    reading: ReadingOptions | None = None,
    out: Annotated[
        Path | None, Parameter(help="File to write the figures to, as JSON; a new one.")
    ] = None,
    json: Json = False,
) -> int:
    """Measure training steps side by side: the plain recipe of torchvision, baseline and mend.

    Rows: `plain` (a DataLoader decodes and flips), `plain-on-device` (images are on the GPU
    already), `baseline`, `mend-paper` (mend --preset paper with the same counts), `mend`, and the
    last ones launched kernel by kernel (`-eager`). Blocks of steps are taken by turns, and medians
    shown. It is made for a GPU. Nothing is downloaded and no run is left behind.
    """
    if not data:
        raise UsageError("give the data whose images are trained on: PATH or PATH:SPLIT")
    if out is not None and out.exists():
        raise UsageError(f"--out {out}: exists already; name a new file")
    try:
        from boxmend.bench.speed.measuring import measure_speed as measure  # imports torch
    except ModuleNotFoundError as error:
        raise UsageError(
            f"training needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    dataset = (reading or ReadingOptions()).load(data)
    answer = measure(dataset, choices or SpeedChoices(), data, _silent if json else say)
    print_measured(answer, out, None if json else _print)
    return ExitStatus.FINE


def _silent(text: str) -> None:
    """Say nothing: only figures are wanted."""


def _print(answer: dict[str, Any]) -> None:
    """Tables for people, each with what it is of."""
    facts = answer["facts"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    print(f"{facts['hardware']} ({facts['device']}), {facts['cores']} cores; {versions}")
    print(f"{answer['choices']['detector']}, batches of {answer['choices']['batch_size']}")
    for table in answer["tables"]:
        counts = f"{table['rois']} RoIs and {table['proposals']} proposals"
        _print_part(f"images at {table['image_size']}, {counts} an image")
        _print_rows(("row",), ((name,) for name in table["rows"]), list(table["rows"].values()))
        if table["ratios"]:
            print()
            _print_ratios(table["ratios"])
    _print_stages(answer["stages"])
    if answer["growth"]:
        _print_growth(answer["growth"])
    if answer["side_by_side"]:
        _print_side_by_side(answer["side_by_side"])


def _print_part(title: str) -> None:
    print(f"\n{title}\n")


def _print_rows(
    headers: Sequence[str], names: Iterable[tuple[object, ...]], rows: Sequence[dict[str, Any]]
) -> None:
    lines = [
        (
            *name,
            *(_shown(row["milliseconds"], ".2f"), _shown(row["images_per_second"], ".1f")),
            *(_gib(row["peak_bytes"]), _gib(row["reserved_bytes"]), row["error"] or ""),
        )
        for name, row in zip(names, rows, strict=True)
    ]
    told = ("ms a step", "images/s", "peak GiB", "held GiB", "failed")
    print_table((*headers, *told), lines)


def _print_ratios(ratios: Sequence[dict[str, Any]]) -> None:
    lines = [
        (one["ratio"], MEASURES[one["measure"]], f"{one['is']:.3f}", one["wanted"])
        for one in ratios
    ]
    print_table(("ratio", "of", "is", "wanted"), lines)


def _print_stages(stages: Sequence[dict[str, Any]]) -> None:
    shown = [one for one in stages if one["shares"]]
    if shown:
        _print_part("share of each stage in the work of a step, launched kernel by kernel")
        headers = ("stage", *(f"{one['row']} at {one['image_size']}" for one in shown))
        lines = [
            (stage, *(f"{100 * one['shares'][stage]:.1f} %" for one in shown))
            for stage in shown[0]["shares"]
        ]
        print_table(headers, lines)
    for one in stages:
        if one["error"]:
            say(f"the stages of {one['row']} at {one['image_size']}: {one['error']}")


def _print_growth(growth: dict[str, Any]) -> None:
    for key, what in (("objects", "objects an image"), ("queue", "losses in the queue")):
        _print_part(f"growth with {what}, images at {growth['image_size']}")
        lines = [
            (
                *(one["row"], one["number"], _shown(one["milliseconds"], ".2f")),
                *(_shown(one["times_the_first"], ".3f"), one["error"] or ""),
            )
            for one in growth[key]
        ]
        print_table(("row", what, "ms a step", "times the first", "failed"), lines)
    memory = growth["memory"]
    took = memory["error"] or f"{memory['milliseconds']:.4f} ms"
    share = memory["share"]
    of_a_step = "" if share is None else f", {100 * share:.2f} % of a step"
    print(f"\nmemory across visits takes {took}{of_a_step}")


def _print_side_by_side(rows: Sequence[dict[str, Any]]) -> None:
    _print_part("trainings side by side on one device")
    lines = [
        (
            *(one["row"], one["image_size"], one["jobs"]),
            *(_shown(one["images_per_second"], ".1f"), one["error"] or ""),
        )
        for one in rows
    ]
    print_table(("row", "image size", "trainings", "images/s in all", "failed"), lines)


def _shown(value: float | None, digits: str) -> str:
    return "-" if value is None else format(value, digits)


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / GIB:.2f}"
