"""The decisions that a method can take about an annotation."""

from enum import IntEnum


class Judgement(IntEnum):
    """The decision about one annotation at one visit; the ledger has the name in lower case."""

    KEPT = 0
    RELABELLED = 1
    DISCARDED = 2
    UNJUDGED = 3  # during warm-up, or by a method that does not judge labels
