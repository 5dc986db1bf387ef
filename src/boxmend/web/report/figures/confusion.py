"""The old and new labels of relabelled annotations."""

import numpy as np

from boxmend.data.types import Rows
from boxmend.runs.judgement import Judgement
from boxmend.web.charts import drawing, words
from boxmend.web.charts.heat import heat_map
from boxmend.web.report.record import Figure, RunRecord

NAME, TITLE = "confusion", "Labels that were changed"
COLUMNS = ("old_label", "new_label", "annotations")
MAX_LABELS = 20
OTHERS = "others"


def confusion(record: RunRecord) -> Figure | None:
    """Draw how many annotations changed from which label to which; return None if none did.

    With many labels, those with the fewest changes are joined as "others". The CSV has all pairs.
    """
    opened = record.opened
    names = opened.dataset.label_names
    changed = opened.settlement.verdicts == Judgement.RELABELLED
    if not changed.any():
        return None
    old, new = opened.dataset.labels[changed], opened.settlement.labels[changed]
    known = (old >= 0) & (new >= 0)
    keys, numbers = np.unique(old[known] * len(names) + new[known], return_counts=True)
    pairs = np.stack([keys // len(names), keys % len(names), numbers], axis=1)  # [p, 3]
    pairs = pairs[np.lexsort((keys, -numbers))]
    if len(pairs) == 0:
        return None
    rows: list[tuple[str | int | float | None, ...]] = [
        (names[a], names[b], count) for a, b, count in pairs.tolist()
    ]
    caption = _caption(rows, int(numbers.sum()))
    shown, counts = _table(pairs, names)
    svg = _svg(caption, shown, counts)
    return Figure(NAME, TITLE, caption, svg, COLUMNS, rows)


def _caption(rows: list[tuple[str | int | float | None, ...]], total: int) -> str:
    old, new, count = rows[0]
    of = "annotation was" if total == 1 else "annotations were"
    return (
        f"{total:,} {of} relabelled; most often {words.isolate_text(str(old))} became "
        f"{words.isolate_text(str(new))} ({count:,} times)."
    ).replace("(1 times)", "(once)")


def _table(pairs: Rows, names: tuple[str, ...]) -> tuple[list[str], Rows]:
    """Return the labels [k] to draw, and the counts [k, k] from old (rows) to new labels."""
    changes = np.bincount(pairs[:, 0], pairs[:, 2], len(names))
    changes += np.bincount(pairs[:, 1], pairs[:, 2], len(names))
    place = np.arange(len(names))
    shown = list(names)
    if len(names) > MAX_LABELS:
        most = np.sort(np.argsort(-changes, kind="stable")[: MAX_LABELS - 1])
        place = np.full(len(names), MAX_LABELS - 1)
        place[most] = np.arange(len(most))
        shown = [*(names[label] for label in most.tolist()), OTHERS]
    counts = np.zeros((len(shown), len(shown)), np.int64)
    np.add.at(counts, (place[pairs[:, 0]], place[pairs[:, 1]]), pairs[:, 2])
    return shown, counts


def _svg(caption: str, names: list[str], counts: Rows) -> str:
    own = counts[:-1, :-1] if names[-1] == OTHERS else counts  # others may be far larger
    most = int(own.max(initial=0)) or int(counts.max())
    content, size = heat_map(names, counts.tolist(), ("annotated as", "mended to"), most)
    return drawing(NAME, TITLE, caption, size, content)
