"""Random orders in which people judge fixes.

An order depends only on the names of the fixes, so that a sample continues after a pause.
"""

from hashlib import blake2b

import numpy as np

from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION, MIN_LIKELY_PROBABILITY, choose_fixes
from boxmend.auditing.fixes.table import Fixes
from boxmend.data.types import Rows

CHECK_EVERY = 4  # fixes of a queue: one of them is drawn at random


def sample_order(fixes: Fixes) -> Rows:
    """Return the fixes that `apply` takes without any verdict, in a fixed random order."""
    return _shuffle(fixes, choose_fixes(fixes, {}, DEFAULT_PRECISION).rows)


def check_order(fixes: Fixes) -> Rows:
    """Return the fixes that are more likely right than not, in a fixed random order.

    A queue mixes them in, since its first fixes alone say little about the others.
    """
    return _shuffle(fixes, np.flatnonzero(fixes.p_fix >= MIN_LIKELY_PROBABILITY))


def mix_in_checks(queue: Rows, checks: Rows) -> Rows:
    """Return a queue in which every `CHECK_EVERY`-th fix comes from `checks`, as the page does."""
    is_queued = np.zeros(max(queue.max(initial=-1), checks.max(initial=-1)) + 1, np.bool_)
    is_queued[queue] = True
    ordered, drawn = iter(queue.tolist()), iter(checks[is_queued[checks]].tolist())
    used, mixed = set[int](), list[int]()
    for place in range(1, len(queue) + 1):
        first, second = (drawn, ordered) if place % CHECK_EVERY == 0 else (ordered, drawn)
        row = next((row for row in first if row not in used), None)
        if row is None:
            row = next(row for row in second if row not in used)
        used.add(row)
        mixed.append(row)
    return np.array(mixed, np.int64)


def _shuffle(fixes: Fixes, rows: Rows) -> Rows:
    keys = [_hash(fixes.ids[row]) for row in rows.tolist()]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    shuffled: Rows = rows[np.array(order, np.int64)]
    return shuffled


def _hash(fix: str) -> bytes:
    return blake2b(fix.encode("utf-8", "backslashreplace"), digest_size=16).digest()
