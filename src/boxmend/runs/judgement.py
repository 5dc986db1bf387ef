"""What can be decided about an annotation; the ground on which ledger and refinement meet."""

from enum import IntEnum


class Judgement(IntEnum):
    """What became of one annotation in one visit; the ledger has the name in small letters."""

    KEPT = 0
    RELABELLED = 1
    DISCARDED = 2
    UNJUDGED = 3  # in warm-up, or by a method that judges nothing
