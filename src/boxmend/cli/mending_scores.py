"""The part of `boxmend evaluate` that scores the mending of a run against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from boxmend.cli.output import print_table, progress, say
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.runs.folder import MENDING_FILE, Run

if TYPE_CHECKING:
    from boxmend.runs.opening import OpenRun
    from boxmend.scoring.corrections import KnownTruth

IN_SAMPLE_NOTE = (
    "The other finders use the run's own detections on its training data. Such a model may have "
    "memorised wrong annotations; --training-detections FILE takes the detections of another model."
)
NO_ERRORS_NOTE = (
    "note: according to this truth no annotation is wrong, so every change counts as harm; if the "
    "data are noisy, give the truth.parquet of `boxmend noise` or the clean dataset"
)
FROM_FILE_NOTE = "The other finders use the detections of --training-detections."
STAGES = {
    "noisy": "as annotated",
    "matched": "after centre matching",
    "final": "as trained on in the last epoch",
    "settled": "as `apply` writes them",
}


@Parameter(name="*")
@dataclass(frozen=True)
class MendingOptions:
    """Options for scoring the mending against the truth."""

    truth: Annotated[
        str | None,
        Parameter(
            help="Score the mending against the truth about the run's training data: the "
            "truth.parquet of `boxmend noise`, its folder, or the clean dataset."
        ),
    ] = None
    compare: Annotated[
        bool,
        Parameter(
            help="With --truth: compare with other tools that find annotation errors (needs "
            "boxmend[compare], and boxmend[train] for the detections).",
            negative="",
        ),
    ] = False
    training_data: Annotated[
        tuple[str, ...],
        Parameter(
            help="New address of the run's training data, if they were moved since.", negative=""
        ),
    ] = ()
    training_detections: Annotated[
        Path | None,
        Parameter(
            help="With --compare: detections on the training data, as COCO results; by default "
            "the run's model makes them."
        ),
    ] = None

    def ensure_consistent(self) -> None:
        """Raise a UsageError for options that need another one."""
        if self.truth is None and (self.compare or self.training_data or self.training_detections):
            raise UsageError("the mending can be scored only against the truth; add --truth")
        if self.training_detections and not self.compare:
            raise UsageError("--training-detections is for the comparison; add --compare")


@dataclass(frozen=True)
class ScoringInputs:
    """A run and the truth about its training data."""

    options: MendingOptions
    opened: OpenRun
    truth: KnownTruth


def scoring_inputs(run: Path, options: MendingOptions) -> ScoringInputs:
    """Read the run and the truth, before the slow detections, so that errors show at once."""
    from boxmend.runs.opening import open_run_with_history
    from boxmend.scoring.corrections import known_truth

    options.ensure_consistent()
    if options.truth is None:
        raise UsageError("give the truth about the run's training data by --truth")
    if options.compare:
        from boxmend.scoring.finders import ensure_installed

        ensure_installed()
    opened = open_run_with_history(run, options.training_data or None)
    return ScoringInputs(options, opened, known_truth(options.truth, opened.dataset))


def add_scores(
    answer: dict[str, Any], run: Path, inputs: ScoringInputs, *, quiet: bool = False
) -> None:
    """Add the scores of a run's mending to the answer of a command, and write RUN/mending.json.

    The keys are "mending" and, with `compare`, "finders". `quiet` shows no progress.
    """
    from boxmend.scoring.corrections import assess

    options, opened, truth = inputs.options, inputs.opened, inputs.truth
    scores = assess(opened, truth)
    result: dict[str, Any] = {"mending": {"truth": options.truth, **scores.to_json()}}
    if options.compare:
        from boxmend.scoring.finders import compare

        detections = _detections(run, opened.dataset, options, quiet=quiet)
        result["finders"] = compare(opened, truth, detections).to_json() | {
            "note": FROM_FILE_NOTE if options.training_detections else IN_SAMPLE_NOTE
        }
    answer |= result
    try:
        Run(run).write_json(MENDING_FILE, result)
    except OutputError as error:
        say(f"{error}; the scores are only shown here")
    if not scores.changes.wrong_before:
        say(NO_ERRORS_NOTE)


def _detections(run: Path, dataset: Dataset, options: MendingOptions, *, quiet: bool) -> Detections:
    """Return detections on the training data, from the file or by the run's model."""
    from boxmend.auditing.predictions import read_coco_results
    from boxmend.training.evaluation import detections_of_run

    if options.training_detections:
        detections = read_coco_results(options.training_detections, dataset)
        _ensure_confidences(options.training_detections, detections)
        return detections
    with progress("detecting objects, images", quiet=quiet) as update:
        prediction = detections_of_run(run, dataset, progress=update)
    if prediction.card.label_names != dataset.label_names:
        raise DataError(
            f"{run}: the label names of its model differ from those of its data; train again"
        )
    for message in prediction.skipped:
        say(f"left out: {message}")
    return prediction.detections


def _ensure_confidences(path: Path, detections: Detections) -> None:
    """Raise a DataError for a score outside 0 to 1, the scale of the finders' thresholds."""
    is_invalid = (detections.scores < 0) | (detections.scores > 1)
    if is_invalid.any():
        row = int(is_invalid.argmax())
        raise DataError(
            f"{path}: detection {row} (the first is 0): score is {detections.scores[row]:g}; "
            "expected a confidence from 0 to 1"
        )


def print_mending(answer: dict[str, Any]) -> None:
    """Print the scores that `add_scores` put into an answer as tables."""
    if "mending" in answer:
        mending = answer["mending"]
        print(f"Mending compared with the truth, {mending['truth']}:")
        for line in _change_lines(mending["changes"]):
            print(f"  {line}")
        print("\nBoxes in the last epoch:")
        headers = ("boxes", "CorLoc", "mean IoU", "IoU > 0.5", "IoU > 0.7")
        print_table(headers, list(_box_rows(mending["boxes"])))
        print("\nLabels in the last epoch:")
        print_table(("what", "is"), list(_label_rows(mending["labels"])))
    if "finders" in answer:
        _print_finders(answer["finders"])


def _change_lines(scores: dict[str, Any]) -> Iterator[str]:
    labels, boxes, spurious = scores["labels"], scores["boxes"], scores["spurious"]
    neither = scores["changes"] - scores["right"] - scores["harm"]
    yield (
        f"changes: {scores['changes']:,}, of which {scores['right']:,} right, "
        f"{scores['harm']:,} harm, {neither:,} neither; wrong annotations: "
        f"{scores['wrong_before']:,}, of which {scores['missed']:,} missed"
    )
    yield (
        f"labels replaced: {labels['relabelled']:,}, of which {labels['right']:,} right now, "
        f"{labels['wrong_to_wrong']:,} wrong before and after, {labels['harm']:,} right before: "
        "harm"
    )
    yield (
        f"boxes moved: {boxes['moved']:,}, of which {boxes['better']:,} better, "
        f"{boxes['alike']:,} about the same, {boxes['worse']:,} worse: harm"
    )
    yield (
        f"wrong labels: {labels['wrong_before']:,} ({_percent(labels['noise_before'])}) before, "
        f"{labels['wrong_after']:,} ({_percent(labels['noise_after'])}) after; "
        f"{labels['missed']:,} missed, {labels['missed_but_unsure']:,} of them listed as unsure"
    )
    yield (
        f"bad boxes (IoU below 0.7): {boxes['bad_before']:,} before, {boxes['bad_after']:,} after; "
        f"{boxes['missed']:,} missed; mean IoU {_decimal(boxes['mean_iou_before'])} before, "
        f"{_decimal(boxes['mean_iou_after'])} after"
    )
    if spurious["annotations"]:
        yield (
            f"spurious annotations: {spurious['annotations']:,}, of which "
            f"{spurious['unsure']:,} listed as unsure, {spurious['relabelled']:,} relabelled, "
            f"{spurious['moved']:,} moved (not counted above)"
        )


def _box_rows(boxes: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, title in STAGES.items():
        fit = boxes[name]
        yield (
            title,
            _percent(fit["corloc"]),
            _decimal(fit["mean_iou"]),
            _percent(fit["above_half"]),
            _percent(fit["above_corloc"]),
        )


def _label_rows(labels: dict[str, Any]) -> Iterator[tuple[str, str]]:
    judgment = labels["judgment"]
    yield "wrong, judged noisy (TP)", _share_and_count(judgment["tp"], judgment["num_tp"])
    yield "wrong, judged clean (FN)", _share_and_count(judgment["fn"], judgment["num_fn"])
    yield "right, judged clean (TN)", _share_and_count(judgment["tn"], judgment["num_tn"])
    yield "right, judged noisy (FP)", _share_and_count(judgment["fp"], judgment["num_fp"])
    yield "label noise before", _percent(labels["noise_before"])
    yield "label noise after, without discarded (N*)", _percent(labels["noise_after"])
    yield "discarded", _percent(labels["discarded"])
    yield "replaced labels that are right", _percent(labels["pseudo_label_precision"])
    yield "area under ROC of the loss", _decimal(labels["loss_auroc"])
    yield "area under ROC of the final loss", _decimal(labels["settled_loss_auroc"])


def _print_finders(finders: dict[str, Any]) -> None:
    print(
        f"\nWho finds more errors in the same {finders['annotations']:,} annotations "
        f"(wrong labels: {finders['wrong_labels']:,}, bad boxes: {finders['bad_boxes']:,})"
    )
    headers = ("finds", "finder", "AUROC", "AP", "flagged", "precision", "recall")
    rows = sorted(finders["scores"], key=lambda score: score["kind"], reverse=True)
    print_table(headers, [_finder_row(score) for score in rows])
    print(
        "Only boxmend corrects: label noise "
        f"{_percent(finders['label_noise_before'])} before, "
        f"{_percent(finders['label_noise_after'])} after; mean IoU "
        f"{_decimal(finders['mean_iou_before'])} before, {_decimal(finders['mean_iou_after'])} "
        "after."
    )
    print(finders["note"])


def _finder_row(score: dict[str, Any]) -> tuple[str, ...]:
    return (
        score["kind"],
        score["finder"],
        _decimal(score["auroc"]),
        _decimal(score["average_precision"]),
        "-" if score["flagged"] is None else f"{score['flagged']:,}",
        _percent(score["precision"]),
        _percent(score["recall"]),
    )


def _share_and_count(share: float | None, count: int) -> str:
    return f"{_percent(share)} ({count:,})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _decimal(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"
