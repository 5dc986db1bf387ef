"""`boxmend bench audit`: compare error finders on the same predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, HeldOutPredictions, Json, ReadingOptions
from boxmend.cli.output import print_measurement, print_table
from boxmend.errors import ExitStatus, UsageError

PRECISION = 0.95
CALIBRATION_KEYS = ("expected", "happened", "error")
ALL_KINDS = "in all"

app = App(name="audit", usage="boxmend bench audit [OPTIONS] DATA...")


@Parameter(name="*")
@dataclass(frozen=True)
class ComparisonOptions:
    """The predictions that the finders get, and the truth to compare their findings with."""

    predictions: HeldOutPredictions = ()
    truth: Annotated[
        str | None,
        Parameter(
            help="The truth: the clean or corrected dataset (PATH or PATH:SPLIT), or truth.parquet "
            "of `boxmend noise`, or its folder."
        ),
    ] = None
    precision: Annotated[
        float,
        Parameter(
            help="Precision for which fixes are chosen, and at which the recalls of the finders "
            "are compared."
        ),
    ] = PRECISION
    ignore_border: Annotated[
        float | None,
        Parameter(
            help="Do not count annotations, objects and proposals within this many pixels of the "
            "image border, where objects are cut."
        ),
    ] = None


@app.default
def audit(
    *data: Data,
    options: ComparisonOptions | None = None,
    reading: ReadingOptions | None = None,
    out: Annotated[Path | None, Parameter(help="New JSON file to write the figures to.")] = None,
    json: Json = False,
) -> int:
    """Compare the audit with ObjectLab, FiftyOne and hotcoco.

    All finders get the same annotations and predictions; ObjectLab is part of cleanlab. For each
    kind of error a table shows the average precision of their rankings, and precision and recall
    at their default thresholds. Two more tables show whether the audit's probabilities are
    calibrated, and whether the fixes chosen for --precision are that precise.

    Example: boxmend bench audit noisy --predictions detections.json --truth clean
    """
    options = options or ComparisonOptions()
    truth = _ensure_valid(data, options, out)
    answer = _compare(data, reading or ReadingOptions(), options, truth)
    print_measurement(answer, out, None if json else _print)
    return ExitStatus.FINE


def _ensure_valid(data: Sequence[str], options: ComparisonOptions, out: Path | None) -> str:
    """Raise a UsageError for invalid options, before anything is read; return --truth."""
    if not data:
        raise UsageError("give the dataset to audit: PATH or PATH:SPLIT")
    if not options.predictions or options.truth is None:
        lacking = "--truth" if options.predictions else "--predictions"
        raise UsageError(f"give {lacking}; the comparison needs --predictions and --truth")
    if not 0 <= options.precision <= 1:
        raise UsageError(f"--precision is {options.precision}; expected a share, like 0.95")
    if options.ignore_border is not None and options.ignore_border < 0:
        raise UsageError(f"--ignore-border is {options.ignore_border}; expected 0 or more pixels")
    if out is not None and out.exists():
        raise UsageError(f"--out {out}: the file exists; choose a new one")
    from boxmend.scoring.finders import ensure_installed

    ensure_installed()
    return options.truth


def _compare(
    data: tuple[str, ...], reading: ReadingOptions, options: ComparisonOptions, source: str
) -> dict[str, Any]:
    from importlib.metadata import version

    from boxmend.auditing.audit import AuditSettings
    from boxmend.auditing.audit import audit as run_audit
    from boxmend.auditing.predictions import read_predictions
    from boxmend.bench.audit import measure_audit
    from boxmend.scoring.border import leave_out_border
    from boxmend.scoring.truth_by_overlap import truth_of_correction

    dataset = reading.load(data)
    paired = truth_of_correction(source, dataset)
    predictions = read_predictions(options.predictions, dataset)
    result = run_audit(dataset, predictions, AuditSettings(probe=0))  # the truth replaces the probe
    truth = paired.truth
    if options.ignore_border is not None:
        truth = leave_out_border(truth, dataset, options.ignore_border)
    measured = measure_audit(dataset, predictions, truth, result, options.precision)
    notes = list(predictions.notes)
    if paired.is_by_overlap:
        notes.append(
            f"the annotations of {source} have other ids, so boxes are matched one to one: "
            f"{paired.num_matched:,} of {len(dataset):,} annotations have a match"
        )
    if measured.missing is None:
        notes.append(
            f"{source} does not say in which images annotations are missing, so missing "
            "annotations are not compared; give the clean dataset by --truth"
        )
    return {
        "data": list(data),
        "predictions": [str(path) for path in options.predictions],
        "truth": source,
        "ignore_border": options.ignore_border,
        "versions": {name: version(name) for name in ("boxmend", "cleanlab", "hotcoco")},
        **measured.to_json(),
        "notes": notes,
    }


def _print(answer: Mapping[str, Any]) -> None:
    """Print the tables, each under its title."""
    finders = answer["finders"]
    counts = (answer["images"], finders["annotations"], answer["detections"])
    print("{:,} images, {:,} annotations, {:,} detections".format(*counts))
    print("\nwho finds more errors\n")
    chosen = answer["at_precision"]
    _print_finders(finders, chosen["wanted"])
    print(f"\ncalibration of the probabilities ({answer['calibration_bins']} bins)\n")
    _print_calibration(answer)
    title = f"fixes chosen for a precision of {chosen['wanted']:g}"
    print(f"\n{title} ({chosen['left']:,} left for review)\n")
    print_table(
        ("kind", "fixes", "right", "precision", "expected"),
        [
            (
                *(kind, counts["fixes"], counts["right"]),
                *(_share(counts["precision"]), _share(counts["expected"])),
            )
            for kind, counts in chosen["by_kind"].items()
        ],
    )
    share = answer["called_wrong"][ALL_KINDS]
    print(f"\nmore likely wrong than right: {_percent(share)} of the annotations")


def _print_finders(finders: Mapping[str, Any], precision: float) -> None:
    rows = []
    previous = None
    for score in finders["scores"]:
        kind = score["kind"]
        number = finders["errors"][kind]
        rows.append(
            (
                f"{kind} ({number:,})" if kind != previous else "",
                *(score["finder"], _share(score["average_precision"])),
                "-" if score["flagged"] is None else score["flagged"],
                *(_percent(score["precision"]), _percent(score["recall"])),
                _percent(score["recall_at_precision"]),
            )
        )
        previous = kind
    title = f"recall at {precision:g}"
    print_table(("kind", "finder", "AP", "flagged", "precision", "recall", title), rows)


def _print_calibration(answer: Mapping[str, Any]) -> None:
    of_annotations = {f"annotation: {kind}": bins for kind, bins in answer["calibration"].items()}
    missing = answer["missing"]
    calibrations = {
        **of_annotations,
        **({} if missing is None else {"object: missing": missing["calibration"]}),
        **{f"fix: {kind}": fixes["calibration"] for kind, fixes in answer["fixes"].items()},
    }
    print_table(
        ("probability of", "number", "mean", "observed", "calibration error"),
        [
            (name, bins["number"], *(_share(bins[key]) for key in CALIBRATION_KEYS))
            for name, bins in calibrations.items()
            if bins["number"]
        ],
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
