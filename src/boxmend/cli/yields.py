"""The table of yields: how many fixes several precisions take."""

from collections.abc import Mapping

from boxmend.auditing.fixes.table import Kind
from boxmend.cli.output import print_table, say

MIN_FIXES = 20  # taken without people; fewer are few, whatever is left

Yields = Mapping[float, Mapping[str, int]]  # by precision, and kind as text


def print_yields(yields: Yields) -> None:
    """Print how many fixes of each kind several precisions take, or that none takes any.

    Kinds of which none takes any are left out.
    """
    if not any(any(counts.values()) for counts in yields.values()):
        say(f"no precision down to {min(yields)} takes a fix; decide on them by `boxmend review`")
        return
    kinds = [kind.words for kind in Kind if any(counts[kind.words] for counts in yields.values())]
    print()
    print_table(
        ("precision", *kinds, "in all"),
        [
            (f"{precision}", *(counts[kind] for kind in kinds), sum(counts.values()))
            for precision, counts in yields.items()
        ],
    )


def are_few(num_taken: int, num_likely: int) -> bool:
    """Return whether so few fixes are taken that other precisions are of interest.

    They are few if more annotations that are likely wrong are left for review.
    """
    return num_taken < max(MIN_FIXES, num_likely)


def count_in_words(num_left: int, num_likely: int) -> str:
    """Return how many fixes are left for review: likely errors, and separately the rest."""
    return (
        f"{num_likely:,} of the others are more likely wrong than not, and "
        f"{num_left - num_likely:,} are less likely"
    )
