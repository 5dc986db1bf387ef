"""Use boxmend as a finder: the ledger of a run, or the probabilities of an audit."""

from collections.abc import Mapping

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU, Fixes, Kind
from boxmend.data.types import Floats, Rows
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.finders.suspicion import MissingRanking, Ranking, Suspects, Suspicion
from boxmend.scoring.fixes import CALLED_WRONG, list_proposed_objects


def suspect_annotations(opened: OpenRun, rows: Rows) -> Suspicion:
    """Return the suspicion of these annotations by a run.

    The suspicion of a label is its settled doubt; that of a box is 1 - IoU with its settled box.
    Flags mark labels that were replaced or discarded, and boxes whose IoU with the settled box is
    below 0.7. A column is None if the run judged no label or moved no box.
    """
    doubts, verdicts = opened.settlement.doubts[rows], opened.settlement.verdicts[rows]
    iou = opened.settlement.iou[rows]
    has_judged = bool((verdicts != Judgement.UNJUDGED).any())
    return Suspicion(
        labels=np.nan_to_num(doubts, nan=0.0) if has_judged else None,
        boxes=1 - iou if opened.settlement.is_moved.any() else None,
        is_label_flagged=np.isin(verdicts, (Judgement.RELABELLED, Judgement.DISCARDED)),
        is_box_flagged=iou < GOOD_IOU,
    )


def suspect_by_kind(p_wrong: Mapping[Kind, Floats], missing: Fixes, rows: Rows) -> Suspects:
    """Return the probabilities of an audit for these annotations; those of 0.5 or more are flagged.

    Missing objects are ranked by the probability that their label and box are right.
    """
    return Suspects(
        annotations={
            kind: Ranking(column[rows], np.nan_to_num(column[rows], nan=0.0) >= CALLED_WRONG)
            for kind, column in p_wrong.items()
            if kind != Kind.MISSING
        },
        missing=MissingRanking(list_proposed_objects(missing), missing.p_fix >= CALLED_WRONG),
    )
