"""`boxmend bench audit`: who finds more label errors on the same predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions
from boxmend.cli.output import print_measured, print_table
from boxmend.errors import ExitStatus, UsageError

PRECISION = 0.95
IN_ALL = "in all"

app = App(name="audit", help_format="markdown")


@Parameter(name="*")
@dataclass(frozen=True)
class Compared:
    """What is compared, and with what."""

    predictions: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Detections of any detector on images it was not trained on, as `boxmend audit` "
            "takes them; give it again to join several.",
            negative="",
        ),
    ] = ()
    truth: Annotated[
        str | None,
        Parameter(
            help="The truth: the clean dataset (PATH or PATH:SPLIT), or truth.parquet of `boxmend "
            "noise`, or its folder."
        ),
    ] = None
    precision: Annotated[
        float, Parameter(help="Precision at which fixes are chosen and held against the truth.")
    ] = PRECISION


@app.default
def audit(
    *data: Data,
    compared: Compared | None = None,
    reading: ReadingOptions | None = None,
    out: Annotated[
        Path | None, Parameter(help="File to write the figures to, as JSON; a new one.")
    ] = None,
    json: Json = False,
) -> int:
    """Compare an audit with cleanlab's ObjectLab, FiftyOne's mistakenness and hotcoco.

    All see the same annotations and predictions, and are held against the truth: by kind of error
    the average precision of the ranking, precision and recall at each finder's own default. Then
    whether the audit's probabilities are kept, and whether the fixes chosen for --precision are
    that precise.
    """
    compared = compared or Compared()
    truth = _checked(data, compared, out)
    answer = _measured(data, reading or ReadingOptions(), compared, truth)
    print_measured(answer, out, None if json else _print)
    return ExitStatus.FINE


def _checked(data: Sequence[str], compared: Compared, out: Path | None) -> str:
    """Refuse what cannot be, before anything is read; where the truth is."""
    if not data:
        raise UsageError("give the data that was audited: PATH or PATH:SPLIT")
    if not compared.predictions or compared.truth is None:
        lacking = "--truth" if compared.predictions else "--predictions"
        raise UsageError(f"give {lacking}; finders are compared on predictions, by a known truth")
    if not 0 <= compared.precision <= 1:
        raise UsageError(f"--precision is {compared.precision}; expected a share, like 0.95")
    if out is not None and out.exists():
        raise UsageError(f"--out {out}: exists already; name a new file")
    from boxmend.scoring.finders import ensure_installed

    ensure_installed()
    return compared.truth


def _measured(
    data: tuple[str, ...], reading: ReadingOptions, compared: Compared, source: str
) -> dict[str, Any]:
    from importlib.metadata import version

    from boxmend.auditing.audit import AuditSettings
    from boxmend.auditing.audit import audit as audited
    from boxmend.auditing.predictions import read_predictions
    from boxmend.bench.audit import figures
    from boxmend.scoring.corrections import known_truth

    dataset = reading.load(data)
    truth = known_truth(source, dataset)
    found = read_predictions(compared.predictions, dataset)
    result = audited(dataset, found, AuditSettings(probe=0))  # the truth is known: none is planted
    measured = figures(dataset, found, truth, result, compared.precision)
    notes = list(found.notes)
    if measured.missing is None:
        notes.append(
            f"{source} does not tell in which images annotations are missing, so missing ones are "
            "left out; name the clean dataset by --truth"
        )
    return {
        "data": list(data),
        "predictions": [str(path) for path in compared.predictions],
        "truth": source,
        "versions": {name: version(name) for name in ("boxmend", "cleanlab", "hotcoco")},
        **measured.to_json(),
        "notes": notes,
    }


def _print(answer: Mapping[str, Any]) -> None:
    """Tables for people, each with what it is of."""
    finders = answer["finders"]
    counts = (answer["images"], finders["annotations"], answer["detections"])
    print("{:,} images, {:,} annotations, {:,} detections".format(*counts))
    print("\nwho finds more\n")
    _print_finders(finders)
    print(f"\nare probabilities kept? (calibration in {answer['calibration_bins']} bins)\n")
    _print_calibration(answer)
    at = answer["at_precision"]
    print(f"\nfixes chosen for a precision of {at['wanted']:g} ({at['left']:,} left for review)\n")
    print_table(
        ("kind", "fixes", "right", "precision", "expected"),
        [
            (kind, one["fixes"], one["right"], _share(one["precision"]), _share(one["expected"]))
            for kind, one in at["by_kind"].items()
        ],
    )
    share = answer["called_wrong"][IN_ALL]
    print(f"\ncalled wrong: {_percent(share)} of the annotations")


def _print_finders(finders: Mapping[str, Any]) -> None:
    rows = []
    last = None
    for one in finders["scores"]:
        kind = one["kind"]
        number = finders["errors"][kind]
        rows.append(
            (
                f"{kind} ({number:,})" if kind != last else "",
                *(one["finder"], _share(one["average_precision"])),
                "-" if one["flagged"] is None else one["flagged"],
                *(_percent(one["precision"]), _percent(one["recall"])),
            )
        )
        last = kind
    print_table(("kind", "finder", "AP", "flagged", "precision", "recall"), rows)


def _print_calibration(answer: Mapping[str, Any]) -> None:
    of_annotations = {f"annotation: {kind}": one for kind, one in answer["calibration"].items()}
    missing = answer["missing"]
    told = {
        **of_annotations,
        **({} if missing is None else {"object: missing": missing["calibration"]}),
        **{f"fix: {kind}": one["calibration"] for kind, one in answer["fixes"].items()},
    }
    print_table(
        ("probability of", "number", "mean", "happened", "calibration error"),
        [
            (name, one["number"], *(_share(one[key]) for key in ("expected", "happened", "error")))
            for name, one in told.items()
            if one["number"]
        ],
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
