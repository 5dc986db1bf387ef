"""What `boxmend evaluate` tells of a run's mending where the truth is known."""

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

IN_SAMPLE = (
    "The other finders go by the run's own detections on the data it was trained on. Such a model "
    "can be optimistic about the annotations as they stand; --training-detections FILE takes "
    "detections of another one."
)
NOTHING_WRONG = (
    "note: by this truth no annotation is wrong, so that any change counts as harm; if the data "
    "are noisy, give the truth.parquet of `boxmend noise` or the clean dataset"
)
GIVEN = "The other finders go by the detections that were given."
STAGES = {
    "noisy": "as annotated",
    "matched": "after centre matching",
    "final": "as trained on at last",
    "settled": "as `apply` writes them",
}


@Parameter(name="*")
@dataclass(frozen=True)
class MendingChoices:
    """Mending, where the truth is known."""

    truth: Annotated[
        str | None,
        Parameter(
            help="The truth about the run's training data: the truth.parquet of `boxmend noise`, "
            "its folder, or the clean dataset (PATH or PATH:SPLIT). Scores the mending."
        ),
    ] = None
    compare: Annotated[
        bool,
        Parameter(
            help="With --truth: let other finders of label errors judge the same annotations "
            "(needs boxmend[compare], and boxmend[train] for the detections).",
            negative="",
        ),
    ] = False
    training_data: Annotated[
        tuple[str, ...],
        Parameter(
            help="Where the run's training data lie now, if they were moved since.", negative=""
        ),
    ] = ()
    training_detections: Annotated[
        Path | None,
        Parameter(
            help="With --compare: detections on the training data, as COCO results; made by the "
            "run's model by default."
        ),
    ] = None

    def check(self) -> None:
        """Raise a UsageError for choices that mean nothing without others."""
        if self.truth is None and (self.compare or self.training_data or self.training_detections):
            raise UsageError("the mending can be scored only against the truth: give --truth, too")
        if self.training_detections and not self.compare:
            raise UsageError("--training-detections is for the comparison: give --compare, too")


@dataclass(frozen=True)
class ScoringInputs:
    """A run and the truth about its data, both read and found to belong together."""

    choices: MendingChoices
    opened: OpenRun
    truth: KnownTruth


def scoring_inputs(run: Path, choices: MendingChoices) -> ScoringInputs:
    """Read all that the scores need but detections, so that what is wrong is told at once."""
    from boxmend.runs.opening import open_run_with_history
    from boxmend.scoring.corrections import known_truth

    choices.check()
    if choices.truth is None:
        raise UsageError("give the truth about the run's training data by --truth")
    if choices.compare:
        from boxmend.scoring.finders import ensure_installed

        ensure_installed()
    opened = open_run_with_history(run, choices.training_data or None)
    return ScoringInputs(choices, opened, known_truth(choices.truth, opened.dataset))


def add(answer: dict[str, Any], run: Path, told: ScoringInputs, *, quiet: bool = False) -> None:
    """Put the scores of a run's mending into the answer of a command.

    They stand under "mending" and, with `compare`, "finders", and so they do in RUN/mending.json,
    which is replaced. `quiet` shows no progress.
    """
    from boxmend.scoring.corrections import assess

    choices, opened, truth = told.choices, told.opened, told.truth
    scores = assess(opened, truth)
    found: dict[str, Any] = {"mending": {"truth": choices.truth, **scores.to_json()}}
    if choices.compare:
        from boxmend.scoring.finders import compare

        detections = _detections(run, opened.dataset, choices, quiet=quiet)
        found["finders"] = compare(opened, truth, detections).to_json() | {
            "note": GIVEN if choices.training_detections else IN_SAMPLE
        }
    answer |= found
    try:
        Run(run).write_json(MENDING_FILE, found)
    except OutputError as error:
        say(f"{error}; the figures are given here alone")
    if not scores.changes.wrong_before:
        say(NOTHING_WRONG)


def _detections(run: Path, dataset: Dataset, choices: MendingChoices, *, quiet: bool) -> Detections:
    """Detections on the training data, by its rows and labels: read, or made by the model."""
    from boxmend.auditing.predictions import read_coco_results
    from boxmend.training.evaluation import detections_of_run

    if choices.training_detections:
        given = read_coco_results(choices.training_detections, dataset)
        _ensure_confidences(choices.training_detections, given)
        return given
    with progress("looking at images", quiet=quiet) as update:
        found = detections_of_run(run, dataset, progress=update)
    if found.card.label_names != dataset.label_names:
        raise DataError(f"{run}: its model knows other label names than its data; train again")
    for message in found.skipped:
        say(f"left out: {message}")
    return found.found


def _ensure_confidences(path: Path, detections: Detections) -> None:
    """Refuse scores in another scale than the limits of the finders."""
    is_odd = (detections.scores < 0) | (detections.scores > 1)
    if is_odd.any():
        row = int(is_odd.argmax())
        raise DataError(
            f"{path}: detection {row} (the first is 0): score is {detections.scores[row]:g}; other "
            "finders take confidences, from 0 to 1"
        )


def print_mending(answer: dict[str, Any]) -> None:
    """Print what `add` put into an answer, if anything, as tables for people."""
    if "mending" in answer:
        mending = answer["mending"]
        print(f"Mending, held against {mending['truth']}:")
        for line in _changes(mending["changes"]):
            print(f"  {line}")
        print("\nBoxes in the last epoch:")
        headers = ("boxes", "CorLoc", "mean IoU", "IoU > 0.5", "IoU > 0.7")
        print_table(headers, list(_box_rows(mending["boxes"])))
        print("\nLabels in the last epoch:")
        print_table(("what", "is"), list(_label_rows(mending["labels"])))
    if "finders" in answer:
        _print_finders(answer["finders"])


def _changes(told: dict[str, Any]) -> Iterator[str]:
    labels, boxes, spurious = told["labels"], told["boxes"], told["spurious"]
    neither = told["changes"] - told["right"] - told["harm"]
    yield (
        f"changes: {told['changes']:,}, of which {told['right']:,} right, {told['harm']:,} harm, "
        f"{neither:,} neither; wrong annotations: {told['wrong_before']:,}, of which "
        f"{told['missed']:,} missed"
    )
    yield (
        f"labels replaced: {labels['relabelled']:,}, of which {labels['right']:,} right now, "
        f"{labels['wrong_to_wrong']:,} wrong before and after, {labels['harm']:,} right before: "
        "harm"
    )
    yield (
        f"boxes moved: {boxes['moved']:,}, of which {boxes['better']:,} better, "
        f"{boxes['alike']:,} alike, {boxes['worse']:,} worse: harm"
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
            f"annotations of nothing: {spurious['annotations']:,}, of which "
            f"{spurious['unsure']:,} listed as unsure, {spurious['relabelled']:,} relabelled, "
            f"{spurious['moved']:,} moved (not counted above)"
        )


def _box_rows(told: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, title in STAGES.items():
        fit = told[name]
        yield (
            title,
            _percent(fit["corloc"]),
            _decimal(fit["mean_iou"]),
            _percent(fit["above_half"]),
            _percent(fit["above_corloc"]),
        )


def _label_rows(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    judgment = told["judgment"]
    yield "wrong, judged noisy (TP)", _counted(judgment["tp"], judgment["num_tp"])
    yield "wrong, judged clean (FN)", _counted(judgment["fn"], judgment["num_fn"])
    yield "right, judged clean (TN)", _counted(judgment["tn"], judgment["num_tn"])
    yield "right, judged noisy (FP)", _counted(judgment["fp"], judgment["num_fp"])
    yield "label noise before", _percent(told["noise_before"])
    yield "label noise after, without discarded (N*)", _percent(told["noise_after"])
    yield "discarded", _percent(told["discarded"])
    yield "replaced labels that are right", _percent(told["pseudo_label_precision"])
    yield "area under ROC of the loss", _decimal(told["loss_auroc"])
    yield "area under ROC of the settled loss", _decimal(told["settled_loss_auroc"])


def _print_finders(told: dict[str, Any]) -> None:
    print(
        f"\nWho finds more, on the same annotations: {told['annotations']:,} "
        f"(wrong labels: {told['wrong_labels']:,}, bad boxes: {told['bad_boxes']:,})"
    )
    headers = ("finds", "finder", "AUROC", "AP", "flagged", "precision", "recall")
    rows = sorted(told["scores"], key=lambda one: one["kind"], reverse=True)
    print_table(headers, [_finder_row(one) for one in rows])
    print(
        "Only boxmend corrects: label noise "
        f"{_percent(told['label_noise_before'])} before, {_percent(told['label_noise_after'])} "
        f"after; mean IoU {_decimal(told['mean_iou_before'])} before, "
        f"{_decimal(told['mean_iou_after'])} after."
    )
    print(told["note"])


def _finder_row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["kind"],
        one["finder"],
        _decimal(one["auroc"]),
        _decimal(one["average_precision"]),
        "-" if one["flagged"] is None else f"{one['flagged']:,}",
        _percent(one["precision"]),
        _percent(one["recall"]),
    )


def _counted(share: float | None, count: int) -> str:
    return f"{_percent(share)} ({count:,})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _decimal(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"
