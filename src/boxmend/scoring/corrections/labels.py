"""Score judgements of labels, and the share of wrong labels before and after."""

from dataclasses import dataclass

import numpy as np

from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.ranking import area_under_roc, share
from boxmend.scoring.truth import KnownTruth


@dataclass(frozen=True)
class Judgment:
    """Labels that were judged noisy (positive) or clean, compared with the truth.

    Shares refer to all wrong or all right labels, so TP + FN = TN + FP = 1.
    """

    judged: int
    tp: float | None
    """Share of the wrong labels that were judged noisy."""
    fn: float | None
    """Share of the wrong labels that were judged clean."""
    tn: float | None
    """Share of the right labels that were judged clean."""
    fp: float | None
    """Share of the right labels that were judged noisy."""
    num_tp: int
    num_fn: int
    num_tn: int
    num_fp: int


@dataclass(frozen=True)
class LabelScores:
    """Scores of the labels of one set of annotations."""

    annotations: int
    judgment: Judgment
    noise_before: float | None
    """Share of wrong labels among the annotated ones."""
    noise_after: float | None
    """N*: share of wrong labels among kept and replaced labels."""
    discarded: float | None
    """Share of all labels that are listed as unsure, including soft labels."""
    replaced: int
    pseudo_label_precision: float | None
    """Share of replaced labels that are right now."""
    loss_auroc: float | None
    """Area under the ROC curve of the losses at these visits, with wrong labels as positives."""
    settled_loss_auroc: float | None
    """Like `loss_auroc`, for the mean loss of the visits that decided each label."""


def score_labels(opened: OpenRun, truth: KnownTruth, visits: Rows) -> LabelScores:
    """Score the labels of visits, one for each annotation that is not spurious.

    Labels without a judgement count as kept, except in `judgment`.
    """
    history, dataset = opened.history, opened.dataset
    rows = history.rows[visits]
    verdicts = history.verdicts[visits]
    is_wrong = truth.is_wrong(dataset.labels)[rows]
    is_replaced, is_discarded = verdicts == Judgement.RELABELLED, verdicts == Judgement.DISCARDED
    labels = np.where(is_replaced, history.labels[visits], dataset.labels[rows])
    is_wrong_now = labels != truth.labels[rows]
    losses = history.losses[visits].astype(np.float64)
    return LabelScores(
        annotations=len(rows),
        judgment=_judgment(
            is_wrong, is_replaced | is_discarded, judged=verdicts != Judgement.UNJUDGED
        ),
        noise_before=share(is_wrong.sum(), len(rows)),
        noise_after=share((is_wrong_now & ~is_discarded).sum(), (~is_discarded).sum()),
        discarded=share(is_discarded.sum(), len(rows)),
        replaced=int(is_replaced.sum()),
        pseudo_label_precision=share((is_replaced & ~is_wrong_now).sum(), is_replaced.sum()),
        loss_auroc=_auroc(losses, is_wrong),
        settled_loss_auroc=_settled_auroc(opened, truth),
    )


def _judgment(is_wrong: Mask, is_positive: Mask, *, judged: Mask) -> Judgment:
    is_wrong, is_positive = is_wrong[judged], is_positive[judged]
    num_tp, num_fn = int((is_positive & is_wrong).sum()), int((~is_positive & is_wrong).sum())
    num_fp, num_tn = int((is_positive & ~is_wrong).sum()), int((~is_positive & ~is_wrong).sum())
    return Judgment(
        judged=len(is_wrong),
        tp=share(num_tp, num_tp + num_fn),
        fn=share(num_fn, num_tp + num_fn),
        tn=share(num_tn, num_tn + num_fp),
        fp=share(num_fp, num_tn + num_fp),
        num_tp=num_tp,
        num_fn=num_fn,
        num_tn=num_tn,
        num_fp=num_fp,
    )


def _settled_auroc(opened: OpenRun, truth: KnownTruth) -> float | None:
    is_object = ~truth.is_spurious
    is_wrong = truth.is_wrong(opened.dataset.labels)
    return _auroc(opened.settlement.losses[is_object], is_wrong[is_object])


def _auroc(losses: Floats, is_wrong: Mask) -> float | None:
    is_known = ~np.isnan(losses)
    return area_under_roc(losses[is_known], is_wrong[is_known])
