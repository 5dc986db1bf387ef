"""`boxmend audit`: annotation errors, fixes, and their probabilities."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.auditing.audit import AuditSettings
from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION, choose_fixes, count_yields
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.folders import AuditFolder, audit_predictions, audit_run
from boxmend.cli.options import Json, ReadingOptions
from boxmend.cli.output import print_json, print_table, say
from boxmend.cli.yields import are_few, count_in_words, print_yields
from boxmend.errors import ExitStatus, UsageError

RATES = {
    "wrong_labels": "wrong labels",
    "bad_boxes": "bad boxes (IoU below 0.7)",
    "missing": "missing, of all objects",
    "spurious": "spurious",
    "duplicates": "duplicates",
}
RATE_OF = dict(zip((kind.words for kind in Kind), RATES, strict=True))


@Parameter(name="*")
@dataclass(frozen=True)
class EvidenceOptions:
    """The evidence about the annotations, and where the audit goes."""

    predictions: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Detections of any detector on the images of DATA: COCO results, Ultralytics' "
            "predictions.json or label folders with confidences, CSV, Parquet, or a folder of "
            "`boxmend folds`. Repeat it to join several.",
            negative="",
        ),
    ] = ()
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder to write to; new or empty. Not for a training run, which is audited into "
            "its own folder."
        ),
    ] = None
    training_data: Annotated[
        tuple[str, ...],
        Parameter(
            help="New address of a training run's dataset, if it was moved since.", negative=""
        ),
    ] = ()
    unseen: Annotated[
        bool,
        Parameter(help="The detector was not trained on these images.", negative=""),
    ] = False
    probe: Annotated[
        float,
        Parameter(
            help="Share of annotations to disturb in memory, to measure how many errors the audit "
            "finds and to calibrate its probabilities; 0 switches this off."
        ),
    ] = 0.02


app = App(name="audit", usage="boxmend audit [OPTIONS] DATA...")


@app.default
def audit(
    *data: Annotated[
        str,
        Parameter(
            help="Dataset: PATH or PATH:SPLIT; several are audited one by one, into one folder. Or "
            "the folder of one finished training run."
        ),
    ],
    evidence: EvidenceOptions | None = None,
    reading: ReadingOptions | None = None,
    json: Json = False,
) -> int:
    """Find wrong labels, bad boxes, missing, spurious and duplicate annotations; propose fixes.

    Each fix has a calibrated probability of being right. The fixes are in OUT/fixes.parquet:
    `boxmend review` shows them one by one, `boxmend apply` writes the dataset with those that reach
    the precision you ask for. The audit itself changes no dataset.

    Example: boxmend audit data.yaml --predictions predictions.json --out audit
    """
    evidence = evidence or EvidenceOptions()
    if not data:
        raise UsageError("give a dataset and its --predictions, or the folder of a training run")
    run = _training_run(data, evidence)
    if run is not None:
        audited = audit_run(run, evidence.training_data or None)
    elif evidence.training_data:
        raise UsageError("--training-data is for a training run; give the dataset as DATA instead")
    elif not evidence.predictions:
        raise UsageError(
            f"{data[0]}: an audit needs detections; give them by --predictions, or give the folder "
            "of a finished training run instead of the dataset"
        )
    elif evidence.out is None:
        raise UsageError("give the folder to write to by --out")
    else:
        reading = reading or ReadingOptions()
        dataset = reading.load(data)
        audited = audit_predictions(
            dataset,
            data,
            evidence.predictions,
            evidence.out,
            AuditSettings(probe=evidence.probe, unseen=evidence.unseen),
            images=reading.images,
        )
    if json:
        print_json({"out": str(audited.run.path), **audited.to_json(), **_count_automatic(audited)})
    else:
        _print(audited)
    return ExitStatus.FINE


def _training_run(data: tuple[str, ...], evidence: EvidenceOptions) -> Path | None:
    """Return the folder of the training run, or None if `data` are datasets."""
    path = Path(data[0])
    if not (path / "run.json").is_file():
        return None
    if len(data) > 1 or evidence.predictions or evidence.out is not None:
        raise UsageError(
            f"{path}: a training run is audited alone and into its own folder; to audit with "
            "--predictions and --out, give the dataset instead"
        )
    return path


def _count_automatic(audited: AuditFolder) -> dict[str, Any]:
    """Count the fixes that reach the default precision, and those left for review."""
    chosen = choose_fixes(audited.audit.fixes, {}, DEFAULT_PRECISION)
    return {
        "at_precision": DEFAULT_PRECISION,
        "automatic": len(chosen.rows),
        "for_review": chosen.num_left,
        "for_review_likely": chosen.num_likely,
        "yields": count_yields(audited.audit.fixes, {}),
    }


def _print(audited: AuditFolder) -> None:
    summary = audited.to_json()
    rows = [(RATES[name], _percent(share)) for name, share in summary["rates"].items()]
    noise = summary["box_noise"]
    rows.append(("edges off by up to", f"{_percent(noise)} of the side"))
    print_table(("estimated", "share (95 % interval)"), rows)
    print()
    print_table(
        ("fixes", "listed", "more likely wrong than not"),
        [
            (kind, counts["listed"], counts["called_wrong"])
            for kind, counts in summary["fixes"].items()
            if RATE_OF[kind] in summary["rates"]  # a training run does not estimate all of them
        ],
    )
    if summary["probe"]:
        print()
        _print_probe(summary["probe"])
    counts = _count_automatic(audited)
    path = audited.run.path
    if summary["not_looked_at"]:
        say(
            f"{summary['not_looked_at']:,} annotations were not judged: their images have no "
            "detections"
        )
    for note in audited.notes:
        say(note)
    for_review = count_in_words(counts["for_review"], counts["for_review_likely"])
    say(
        f"wrote {path}: at precision {DEFAULT_PRECISION}, {counts['automatic']:,} fixes are "
        f"automatic; {for_review}"
    )
    if are_few(counts["automatic"], counts["for_review_likely"]):
        print_yields(count_yields(audited.audit.fixes, {}))
    name = quote(str(path))
    say(
        f"next: boxmend review {name}, or "
        f"boxmend apply {name} --precision {DEFAULT_PRECISION} --out DIR"
    )


def _print_probe(probe: dict[str, Any]) -> None:
    """Print how many planted errors the audit finds, by kind and cause."""
    print_table(
        ("planted errors", "", "planted", "found", "of those fixed correctly"),
        [
            (
                kind if k == 0 else "",
                cause,
                counts["planted"],
                _percent(counts["found_share"]),
                _percent(counts["right_share"]),
            )
            for kind, counts_of_kind in probe.items()
            for k, (cause, counts) in enumerate(counts_of_kind["causes"].items())
        ],
    )


def _percent(share: dict[str, float] | None) -> str:
    if share is None:
        return "-"
    value, low, high = (100 * share[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"
