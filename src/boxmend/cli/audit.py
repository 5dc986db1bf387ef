"""`boxmend audit`: what is wrong with annotations, how sure that is, and how to mend it."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.auditing.audit import AuditSettings
from boxmend.auditing.fixes.choosing import PRECISION, choose
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.folders import AuditFolder, audit_predictions, audit_run
from boxmend.cli.options import Json, ReadingOptions
from boxmend.cli.output import print_json, print_table, say
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
    """What speaks for and against the annotations."""

    predictions: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Detections of any detector in the images of DATA: COCO results, Ultralytics' "
            "predictions.json or label folders with confidences, CSV, Parquet, or the folder of "
            "`boxmend folds`; give it again to join several.",
            negative="",
        ),
    ] = ()
    out: Annotated[
        Path | None, Parameter(help="Folder to write to; new, or empty. Not for a training run.")
    ] = None
    training_data: Annotated[
        tuple[str, ...],
        Parameter(help="Where the dataset of a training run lies now, if moved.", negative=""),
    ] = ()
    unseen: Annotated[
        bool,
        Parameter(help="The detector was not trained on these images.", negative=""),
    ] = False
    probe: Annotated[
        float,
        Parameter(
            help="Share of annotations disturbed in memory, with known answers, to measure how "
            "many errors are found; 0 to go without."
        ),
    ] = 0.02


app = App(name="audit", help_format="markdown")


@app.default
def audit(
    *data: Annotated[
        str,
        Parameter(
            help="Dataset: PATH or PATH:SPLIT; several are joined, and each is audited for "
            "itself. Or the folder of one finished training run."
        ),
    ],
    evidence: EvidenceOptions | None = None,
    reading: ReadingOptions | None = None,
    json: Json = False,
) -> int:
    """Find wrong labels, bad boxes, missing, spurious and duplicate annotations, with fixes.

    Each fix has a probability of being right, which is calibrated by errors planted in memory. The
    table is RUN/fixes.parquet; `boxmend apply` writes the dataset with the fixes that reach a
    stated precision, `boxmend review` shows them one by one. Nothing is changed here.
    """
    evidence = evidence or EvidenceOptions()
    if not data:
        raise UsageError("name a dataset and its --predictions, or the folder of a training run")
    run = _training_run(data, evidence)
    if run is not None:
        audited = audit_run(run, evidence.training_data or None)
    elif evidence.training_data:
        raise UsageError("--training-data is for a training run; name the dataset by itself")
    elif not evidence.predictions:
        raise UsageError(
            f"{data[0]}: give the detections of a detector by --predictions, or the folder of a "
            "finished training run in place of the dataset"
        )
    elif evidence.out is None:
        raise UsageError("name the folder to write to by --out")
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
        print_json({"out": str(audited.run.path), **audited.to_json(), **_automatic(audited)})
    else:
        _print(audited)
    return ExitStatus.FINE


def _training_run(data: tuple[str, ...], evidence: EvidenceOptions) -> Path | None:
    """The folder of a run, where that is what was named."""
    path = Path(data[0])
    if not (path / "run.json").is_file():
        return None
    if len(data) > 1 or evidence.predictions or evidence.out is not None:
        raise UsageError(
            f"{path}: a training run is audited by itself, into its own folder; to audit by "
            "--predictions name the dataset"
        )
    return path


def _automatic(audited: AuditFolder) -> dict[str, Any]:
    """How many fixes would be taken as they are."""
    chosen = choose(audited.audit.fixes, {}, PRECISION)
    return {
        "at_precision": PRECISION,
        "automatic": len(chosen.rows),
        "for_review": chosen.num_left,
    }


def _print(audited: AuditFolder) -> None:
    told = audited.to_json()
    rows = [(RATES[name], _percent(share)) for name, share in told["rates"].items()]
    noise = told["box_noise"]
    rows.append(("edges off by up to", f"{_percent(noise)} of the side"))
    print_table(("estimated", "share (95 % interval)"), rows)
    print()
    print_table(
        (
            "fixes",
            "listed",
            "more likely wrong than not",
            "planted errors found",
            "of those fixed rightly",
        ),
        [
            (kind, one["listed"], one["called_wrong"], *_probed(told["probe"], kind))
            for kind, one in told["fixes"].items()
            if RATE_OF[kind] in told["rates"]  # a training run does not look for all of them
        ],
    )
    found = _automatic(audited)
    path = audited.run.path
    if told["not_looked_at"]:
        say(
            f"{told['not_looked_at']:,} annotations are in images without any detection and were "
            "not judged"
        )
    for note in audited.notes:
        say(note)
    say(
        f"wrote {path}: at precision {PRECISION}, {found['automatic']:,} fixes are automatic and "
        f"{found['for_review']:,} for review"
    )
    said = quote(str(path))
    say(f"next: boxmend review {said}, or boxmend apply {said} --precision {PRECISION} --out DIR")


def _probed(probe: dict[str, Any] | None, kind: str) -> tuple[str, str]:
    if not probe or kind not in probe:
        return "", ""
    return _percent(probe[kind]["found_share"]), _percent(probe[kind]["right_share"])


def _percent(share: dict[str, float] | None) -> str:
    if share is None:
        return "-"
    value, low, high = (100 * share[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"
