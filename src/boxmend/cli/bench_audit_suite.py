"""`boxmend bench audit-suite`: audit one dataset under all kinds of noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, HeldOutPredictions, Json, ReadingOptions
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.errors import ExitStatus, UsageError

app = App(name="audit-suite", usage="boxmend bench audit-suite [OPTIONS] DATA...")


@Parameter(name="*")
@dataclass(frozen=True)
class SuiteOptions:
    """The predictions, regimes and seeds of the suite."""

    predictions: HeldOutPredictions = ()
    regimes: Annotated[
        tuple[str, ...],
        Parameter(help="Regimes to run, like clean,pair-3; all by default.", negative=""),
    ] = ()
    seeds: Annotated[int, Parameter(help="Number of seeds for each regime.")] = 3
    first_seed: Annotated[int, Parameter(help="The first of these seeds.")] = 0
    look_alike_pairs: Annotated[
        tuple[str, ...],
        Parameter(
            name="--look-alike-pair",
            help="Two classes that look alike, like cat/dog; repeat it for more. By default the "
            "common pairs that the dataset has.",
            negative="",
        ),
    ] = ()
    matrix: Annotated[
        Path | None, Parameter(help="Label matrix for one more regime, as for `boxmend noise`.")
    ] = None


@app.default
def audit_suite(
    *data: Data,
    options: SuiteOptions | None = None,
    reading: ReadingOptions | None = None,
    out: Annotated[
        Path | None,
        Parameter(help="Folder for the figures of each regime and seed; the same one resumes."),
    ] = None,
    json: Json = False,
) -> int:
    """Measure the audit and other finders under all kinds of noise.

    The annotations of DATA count as the truth, so they should be as correct as possible. Tables
    show the average precision of every finder by kind of error and regime, whether fixes are as
    precise as requested, how well their probabilities are calibrated, how many of the possible
    fixes are taken, and whether the intervals of the estimated rates contain the true rates.

    Example: boxmend bench audit-suite clean --predictions found.json --out suite
    """
    options = options or SuiteOptions()
    answer = _run(data, reading or ReadingOptions(), options, out, quiet=json)
    if json:
        print_json(answer)
    else:
        for note in answer["notes"]:
            say(note)
        _print(answer["tables"])
    return ExitStatus.FINE


def _run(
    data: tuple[str, ...],
    reading: ReadingOptions,
    options: SuiteOptions,
    out: Path | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Run the suite and return its tables and cells as plain data."""
    if not data or not options.predictions:
        lacking = "--predictions" if data else "the dataset: PATH or PATH:SPLIT"
        raise UsageError(f"give {lacking}; the suite needs a dataset and --predictions on it")
    from boxmend.scoring.finders import ensure_installed

    ensure_installed()
    from boxmend.auditing.predictions import read_predictions
    from boxmend.bench.audit.regimes import choose_regimes, make_regimes
    from boxmend.bench.audit.suite import SuiteInputs, parse_names, parse_seeds, run_suite
    from boxmend.bench.audit.suite_tables import make_tables

    seeds = parse_seeds(options.seeds, options.first_seed)
    dataset = reading.load(data)
    matrix = None if options.matrix is None else str(options.matrix)
    known = make_regimes(dataset.label_names, options.look_alike_pairs, matrix)
    regimes = choose_regimes(known, parse_names(options.regimes))
    predictions = read_predictions(options.predictions, dataset)
    notes = list(predictions.notes)
    if not any(regime.settings.look_alike_pairs for regime in known):
        notes.append(
            "no common look-alikes among the classes; name some by --look-alike-pair, or see the "
            "regimes confusions-3 and confusions-10"
        )
    with progress("regimes and seeds", quiet=quiet) as report:
        cells = run_suite(SuiteInputs(dataset, predictions, regimes, seeds), out, report)
    return {
        "data": list(data),
        "predictions": [str(path) for path in options.predictions],
        "seeds": list(seeds),
        "tables": make_tables(cells).to_json(),
        "cells": cells,
        "notes": notes,
    }


def _print(tables: Mapping[str, Any]) -> None:
    """Print all tables, each under its title."""
    _print_rankings("average precision of the rankings", tables["ranking"])
    _print_promises(tables["promise"])
    print("\ncalibration of the fixes, seeds pooled\n")
    print_table(
        ("regime", "kind", "fixes", "expected", "right", "error", "verdict"),
        [
            (
                *(row["regime"], row["kind"], round(row["fixes"])),
                *(_share(row[key]) for key in ("expected", "right", "error")),
                row["verdict"],
            )
            for row in tables["calibration"]
            if row["kind"] != "in all"
        ],
    )
    print("\nyield: k top-ranked fixes are 95 % right; taken at 0.95, sums over seeds\n")
    print_table(
        ("regime", "k", "taken", "right", "verdict"),
        [
            tuple(row[key] for key in ("regime", "k", "taken", "right", "verdict"))
            for row in tables["yields"]
        ],
    )
    _print_rates(tables["rates"])
    _print_rankings("average precision of rankings of images", tables["images"])
    for row in tables["clean"]:
        print(
            f"\nclean, seed {row['seed']}: {_percent(row['called_wrong'])} of the annotations are "
            f"called wrong, {row['fixes_at_0.9']} fixes are taken at 0.9"
        )


def _print_rankings(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    print(f"\n{title}, means over seeds\n")
    finders = list(dict.fromkeys(finder for row in rows for finder in row["ap"]))
    has_verdict = any("verdict" in row for row in rows)
    print_table(
        ("kind", "regime", "number", *finders, *(("verdict",) if has_verdict else ())),
        [
            (
                *(row["kind"], row["regime"], round(row["errors" if has_verdict else "images"])),
                *(_share(row["ap"].get(finder)) for finder in finders),
                *((row["verdict"],) if has_verdict else ()),
            )
            for row in rows
        ],
    )


def _print_promises(rows: Sequence[Mapping[str, Any]]) -> None:
    print("\nfixes taken for a precision, seeds pooled\n")
    print_table(
        ("regime", "precision", "fixes", "right", "share", "95 % interval", "verdict"),
        [
            (
                *(row["regime"], f"{row['precision']:g}", row["fixes"], row["right"]),
                _share(row["right"] / row["fixes"] if row["fixes"] else None),
                f"{_share(row['low'])} to {_share(row['high'])}" if row["fixes"] else "-",
                row["verdict"],
            )
            for row in rows
        ],
    )


def _print_rates(rows: Sequence[Mapping[str, Any]]) -> None:
    print("\nestimated rates with 95 % intervals, means over seeds\n")
    print_table(
        ("regime", "rate", "true", "estimate", "interval", "inside", "no width"),
        [
            (
                *(row["regime"], row["kind"], _percent(row["true"]), _percent(row["estimate"])),
                f"{_percent(row['low'])} to {_percent(row['high'])}",
                *(f"{row['inside']} of {row['seeds']}", row["zero_width"]),
            )
            for row in rows
        ],
    )
    print()
    for title, some in (
        ("of the kinds that a regime plants", [row for row in rows if row["true"] > 0]),
        ("0 of the others", [row for row in rows if row["true"] == 0]),
    ):
        inside, seeds = (sum(row[key] for row in some) for key in ("inside", "seeds"))
        print(f"{inside} of {seeds} intervals hold the true rate {title}")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
