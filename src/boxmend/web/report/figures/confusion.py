"""Which labels were taken for which: old against new label of relabelled annotations."""

import numpy as np

from boxmend.data.types import Rows
from boxmend.runs.judgement import Judgement
from boxmend.web.charts import drawing, words
from boxmend.web.charts.heat import heat_map
from boxmend.web.report.record import Figure, RunRecord

NAME, TITLE = "confusion", "Labels that were changed"
COLUMNS = ("old_label", "new_label", "annotations")
MOST_LABELS = 20
OTHERS = "others"


def confusion(record: RunRecord) -> Figure | None:
    """Draw how many annotations went from which label to which; None where none did.

    With many labels, those with the fewest changes are joined as others. The CSV has all pairs.
    """
    opened = record.opened
    names = opened.dataset.label_names
    changed = opened.settlement.verdicts == Judgement.RELABELLED
    if not changed.any():
        return None
    old, new = opened.dataset.labels[changed], opened.settlement.labels[changed]
    known = (old >= 0) & (new >= 0)
    keys, found = np.unique(old[known] * len(names) + new[known], return_counts=True)
    pairs = np.stack([keys // len(names), keys % len(names), found], axis=1)  # [p, 3]
    pairs = pairs[np.lexsort((keys, -found))]
    if len(pairs) == 0:
        return None
    rows: list[tuple[str | int | float | None, ...]] = [
        (names[a], names[b], count) for a, b, count in pairs.tolist()
    ]
    caption = _caption(rows, int(found.sum()))
    shown, counts = _table(pairs, names)
    svg = _svg(caption, shown, counts)
    return Figure(NAME, TITLE, caption, svg, COLUMNS, rows)


def _caption(rows: list[tuple[str | int | float | None, ...]], total: int) -> str:
    old, new, count = rows[0]
    of = "annotation was" if total == 1 else "annotations were"
    return (
        f"{total:,} {of} relabelled; most often {words.isolated(str(old))} became "
        f"{words.isolated(str(new))} ({count:,} times)."
    ).replace("(1 times)", "(once)")


def _table(pairs: Rows, names: tuple[str, ...]) -> tuple[list[str], Rows]:
    """The labels to draw, in the dataset's order, and [k, k] counts from old (rows) to new."""
    changes = np.bincount(pairs[:, 0], pairs[:, 2], len(names))
    changes += np.bincount(pairs[:, 1], pairs[:, 2], len(names))
    place = np.arange(len(names))
    shown = list(names)
    if len(names) > MOST_LABELS:
        most = np.sort(np.argsort(-changes, kind="stable")[: MOST_LABELS - 1])
        place = np.full(len(names), MOST_LABELS - 1)
        place[most] = np.arange(len(most))
        shown = [*(names[label] for label in most.tolist()), OTHERS]
    counts = np.zeros((len(shown), len(shown)), np.int64)
    np.add.at(counts, (place[pairs[:, 0]], place[pairs[:, 1]]), pairs[:, 2])
    return shown, counts


def _svg(caption: str, names: list[str], counts: Rows) -> str:
    own = counts[:-1, :-1] if names[-1] == OTHERS else counts  # else the rest would outshine all
    most = int(own.max(initial=0)) or int(counts.max())
    content, size = heat_map(names, counts.tolist(), ("annotated as", "mended to"), most)
    return drawing(NAME, TITLE, caption, size, content)
