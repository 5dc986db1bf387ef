"""boxmend's own suspicion, from the ledger of a run or from the probabilities of an audit."""

from collections.abc import Mapping

import numpy as np

from boxmend.auditing.fixes.table import GOOD_IOU, Fixes, Kind
from boxmend.data.types import Floats, Rows
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.finders.suspicion import Offered, Ranked, Suspects, Suspicion
from boxmend.scoring.fixes import CALLED_WRONG, proposed_by


def suspicion(opened: OpenRun, rows: Rows) -> Suspicion:
    """Suspect a label by its settled doubt, and a box by how far it moved: 1 - IoU.

    Flagged are labels that were replaced or are unsure, and boxes that moved so far that their
    IoU with the settled ones is below 0.7. A run that judged no label suspects none.
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


def by_kind(p_wrong: Mapping[Kind, Floats], missing: Fixes, rows: Rows) -> Suspects:
    """Suspect by the probabilities of an audit, of these rows; flagged are those of 0.5 or more.

    Missing objects are ranked by the probability that they are right, label and all.
    """
    return Suspects(
        annotations={
            kind: Ranked(told[rows], np.nan_to_num(told[rows], nan=0.0) >= CALLED_WRONG)
            for kind, told in p_wrong.items()
            if kind != Kind.MISSING
        },
        missing=Offered(proposed_by(missing), missing.p_fix >= CALLED_WRONG),
    )
