"""`boxmend evaluate`: score detections, and the mending of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.mending_scores import MendingOptions, add_scores, print_mending, scoring_inputs
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
class EvaluationInputs:
    """The detections to score, and the data to score them on."""

    data: Annotated[
        tuple[str, ...],
        Parameter(
            help="Dataset to score on, used as the truth: PATH or PATH:SPLIT; repeat it to join "
            "several.",
            negative="",
        ),
    ] = ()
    predictions: Annotated[
        Path | None,
        Parameter(help="COCO results (JSON) of any detector, instead of a run."),
    ] = None
    detections_out: Annotated[
        Path | None,
        Parameter(help="New file to write the detections of the run to, as COCO results."),
    ] = None


app = App(name="evaluate", usage="boxmend evaluate [OPTIONS] [RUN]")


@app.default
def evaluate(
    run: Annotated[
        Path | None, Parameter(help="Folder of a finished run; its model predicts on --data.")
    ] = None,
    /,
    *,
    inputs: EvaluationInputs | None = None,
    mending: MendingOptions | None = None,
    json: Json = False,
) -> int:
    """Score detections by COCO and VOC metrics; --truth also scores the mending.

    Give either RUN or --predictions, a JSON list of results with image_id or file_name, category_id
    or category_name, bbox [x, y, width, height] and score. Scores are fractions of 1; those of a
    run are also written to RUN/evaluation.json.

    Example: boxmend evaluate run --data data.yaml:val
    """
    inputs, mending = inputs or EvaluationInputs(), mending or MendingOptions()
    _ensure_consistent(run, inputs, mending)
    mended = scoring_inputs(run, mending) if run is not None and mending.truth is not None else None
    answer: dict[str, Any] = {}
    messages: list[str] = []
    if inputs.data or inputs.predictions is not None:
        with progress("detecting objects, images", quiet=json or run is None) as update:
            evaluation = evaluate_detections(run, **vars(inputs), progress=update)
        answer, messages = evaluation.to_json(), [f"note: {note}" for note in evaluation.notes]
        messages += [] if evaluation.saved is None else [f"wrote {evaluation.saved}"]
    if run is not None and mended is not None:
        add_scores(answer, run, mended, quiet=json)
    if json:
        print_json(answer)
    else:
        _print(answer)
    for message in messages:
        say(message)
    return ExitStatus.FINE


def _ensure_consistent(run: Path | None, inputs: EvaluationInputs, mending: MendingOptions) -> None:
    """Raise a UsageError for options that are missing or exclude each other."""
    mending.ensure_consistent()
    if run is None and inputs.predictions is None:
        raise UsageError("give a run, or --predictions with the detections of another detector")
    if run is not None and inputs.predictions is not None:
        raise UsageError(
            f"give either a run (here {run}) or --predictions; repeat --data for each of several "
            "datasets"
        )
    if run is None and mending.truth is not None:
        raise UsageError("--truth scores the mending of a run; give a run")
    if inputs.predictions is not None and not inputs.data:
        raise UsageError("give the data to score --predictions on by --data")
    if not inputs.data and mending.truth is None:
        raise UsageError("give the data to score on by --data, or the truth about a run by --truth")
    if not inputs.data and inputs.detections_out is not None:
        raise UsageError("--detections-out needs the images of --data; give --data")


def _print(answer: dict[str, Any]) -> None:
    """Print tables: the figures, then the classes, then the mending."""
    if "by_label" in answer:
        figures = {key: value for key, value in answer.items() if not isinstance(value, dict)}
        rows = [(key, _figure(value)) for key, value in figures.items()]
        print_table(("what", "is"), rows)
        print()
        print_table(
            ("class", *BY_LABEL.values()),
            [
                (name, *(_figure(scores[key]) for key in BY_LABEL))
                for name, scores in answer["by_label"].items()
            ],
        )
        if "mending" in answer:
            print()
    print_mending(answer)


def _figure(value: float | int | None) -> str | int:
    """Format a fraction with four digits; counts stay as they are."""
    if value is None:
        return "-"
    return value if isinstance(value, int) else f"{value:.4f}"
