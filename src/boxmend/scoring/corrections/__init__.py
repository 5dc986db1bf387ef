"""Score the changes of a run by a known truth."""

from dataclasses import asdict, dataclass
from typing import Any

from boxmend.repair.from_visits import changes_from_visits
from boxmend.runs.opening import OpenRun
from boxmend.scoring.corrections.boxes import BoxScores, score_boxes
from boxmend.scoring.corrections.changes import ChangeScores, score_changes
from boxmend.scoring.corrections.labels import LabelScores, score_labels
from boxmend.scoring.truth import KnownTruth, known_truth


@dataclass(frozen=True)
class Assessment:
    """The scores of a run; undefined fractions are None.

    `boxes` and `labels` are those of the last visit of each annotation in the last epoch, as in the
    paper. `changes` are those that `apply` writes.
    """

    boxes: BoxScores
    labels: LabelScores
    changes: ChangeScores

    def to_json(self) -> dict[str, Any]:
        """Return plain data: numbers, None and dictionaries."""
        return asdict(self)


def assess(opened: OpenRun, truth: KnownTruth) -> Assessment:
    """Score a run by the truth of its dataset; spurious annotations are counted separately."""
    history = opened.history
    is_last_epoch = history.epochs == history.num_epochs - 1
    visits = history.last(is_last_epoch, len(opened.dataset))
    visits = visits[(visits >= 0) & ~truth.is_spurious]
    return Assessment(
        boxes=score_boxes(opened, truth, visits),
        labels=score_labels(opened, truth, visits),
        changes=score_changes(opened, changes_from_visits(opened.settlement), truth),
    )


__all__ = ["Assessment", "KnownTruth", "assess", "known_truth"]
