"""`boxmend evaluate`: how good detections are, and how good the mending was."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.mending_scores import MendingChoices, add, print_mending, scoring_inputs
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.errors import ExitStatus, UsageError
from boxmend.training.evaluation import evaluate as evaluate_detections

BY_LABEL = {  # key: header
    "AP": "AP",
    "AP50": "AP50",
    "voc_ap50_11point": "VOC 11-pt",
    "voc_ap50_area": "VOC area",
    "annotations": "annotations",
    "detections": "detections",
}


@Parameter(name="*")
@dataclass(frozen=True)
class Scored:
    """What is scored, and on what."""

    data: Annotated[
        tuple[str, ...],
        Parameter(
            help="Annotated data to score on, taken for the truth: PATH or PATH:SPLIT; give it "
            "again to join several.",
            negative="",
        ),
    ] = ()
    predictions: Annotated[
        Path | None,
        Parameter(help="Detections of any detector, instead of a run's: COCO results (JSON)."),
    ] = None
    detections_out: Annotated[
        Path | None,
        Parameter(help="File to write the run's detections to, as COCO results; a new one."),
    ] = None


app = App(name="evaluate", help_format="markdown")


@app.default
def evaluate(
    run: Annotated[
        Path | None, Parameter(help="Folder of a finished run, whose model looks at the data.")
    ] = None,
    /,
    *,
    scored: Scored | None = None,
    mending: MendingChoices | None = None,
    json: Json = False,
) -> int:
    """Score detections by the rules of COCO and VOC, and with --truth the mending of a run.

    Give either RUN or --predictions: a JSON list of image_id, category_id, bbox [x, y, width,
    height] and score. Images may be told by id or file name, classes by id or name. Figures are
    fractions of 1; those of a run are also written to RUN/evaluation.json.
    """
    scored, mending = scored or Scored(), mending or MendingChoices()
    _ensure_something(run, scored, mending)
    mended = scoring_inputs(run, mending) if run is not None and mending.truth is not None else None
    answer: dict[str, Any] = {}
    talk: list[str] = []
    if scored.data or scored.predictions is not None:
        with progress("looking at images", quiet=json or run is None) as update:
            found = evaluate_detections(run, **vars(scored), progress=update)
        answer, talk = found.to_json(), [f"note: {note}" for note in found.notes]
        talk += [] if found.saved is None else [f"wrote {found.saved}"]
    if run is not None and mended is not None:
        add(answer, run, mended, quiet=json)
    if json:
        print_json(answer)
    else:
        _print(answer)
    for line in talk:
        say(line)
    return ExitStatus.FINE


def _ensure_something(run: Path | None, scored: Scored, mending: MendingChoices) -> None:
    """Refuse calls that ask for nothing, or for what cannot be."""
    mending.check()
    if run is None and scored.predictions is None:
        raise UsageError("give a run, or --predictions with the detections of another detector")
    if run is not None and scored.predictions is not None:
        raise UsageError(
            f"give either a run ({run} stands in its place) or --predictions; several datasets "
            "take a --data each"
        )
    if run is None and mending.truth is not None:
        raise UsageError("--truth scores the mending of a run; give a run")
    if scored.predictions is not None and not scored.data:
        raise UsageError("give the data to score --predictions on by --data")
    if not scored.data and mending.truth is None:
        raise UsageError("give the data to score on by --data, or the truth about a run by --truth")
    if not scored.data and scored.detections_out is not None:
        raise UsageError("--detections-out writes detections in the images of --data; give that")


def _print(answer: dict[str, Any]) -> None:
    """Tables for people: the figures, then the classes, then the mending."""
    if "by_label" in answer:
        figures = {key: one for key, one in answer.items() if not isinstance(one, dict)}
        rows = [(key, _figure(value)) for key, value in figures.items()]
        print_table(("what", "is"), rows)
        print()
        print_table(
            ("class", *BY_LABEL.values()),
            [
                (name, *(_figure(told[key]) for key in BY_LABEL))
                for name, told in answer["by_label"].items()
            ],
        )
        if "mending" in answer:
            print()
    print_mending(answer)


def _figure(value: float | int | None) -> str | int:
    """A fraction with as many digits as mean anything; counts as they are."""
    if value is None:
        return "-"
    return value if isinstance(value, int) else f"{value:.4f}"
