"""What each table is made of: rows, columns, and so the cells that a grid has to run.

Plain data, shared by running and reading:

    LAYOUTS[name]        -> Layout: rows, columns, which of them are run
    asked(layout)        -> one Asked for each square that is run: noise, method, variant
    Asked.variant        is written into `Result.variant` as it stands; that is how a square finds
                         its results, together with noise, method and scale

Several squares may ask for the same cell (`clean` does so in every column). A variant names
settings by their dotted names. Two of its values stand for something that depends on the cell:
TRUE for the rate of the noise that was made, TWICE for twice what the scale says. What a method
does anyway (N of 128 in the paper's method) is no variant: the square shares the plain cell.

Columns are named like the first part of a cell's name: label noise, box noise, and where there is
any, what is missing or spurious.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

from boxmend.errors import UsageError
from boxmend.settings import PublishedSettings

TRUE = "true"
"""As the value of label_noise or box_noise: the rate that the noise was made with, 0 for none."""
TWICE = "twice"
"""As the value of epochs: twice the passes of the scale."""
TWO_STAGE = "two-stage"
"""As a method: `mend`, then `baseline` trained afresh on the mended annotations."""

TOLD = frozenset(
    {"co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "cm", "cinj", "pseudo", "mend-paper"}
)
"""Methods whose cells are told both true rates, as their papers assume; others go by defaults."""

Variant = Mapping[str, bool | int | float | str]


@dataclass(frozen=True)
class Column:
    """One noise setting."""

    name: str
    """Unique in its table: label40-box40, pair40-box0, label0-oamil40, label0-box0-missing20."""
    title: str
    labels: str | None = None
    """KIND:RATE as `boxmend noise` takes it; None: clean labels."""
    boxes: str | None = None
    metric: str | None = None
    """A score that this column shows whatever is asked for; None: the table's."""
    presence: str | None = None
    """missing:RATE or spurious:RATE; None: every object is annotated, and nothing else."""


@dataclass(frozen=True)
class Row:
    """One method, or one of its variants; without a method it is a published record alone."""

    name: str
    method: str | None
    variant: Variant = field(default_factory=dict)
    is_clean: bool = False
    """The reference: trained without noise, whatever the column says."""
    figure: str | None = None
    """A dotted place in `Result` shown instead of a score: mending.labels.noise_after."""
    is_apart: bool = False
    """A published record of another detector: its share of baseline's loss means nothing."""


@dataclass(frozen=True)
class Layout:
    """One table."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column: the rows that are run there; in a column not named here all are."""
    compare: Literal["share", "difference", "none"] = "share"
    """Shown besides: the share of the lost accuracy won back, or the difference to baseline."""
    metric: str = "voc_ap50_area"
    """The score that is shown unless another is asked for."""
    records: str = ""
    """The table of published.toml with the figures to show beside, where its name is another."""

    def is_run(self, row: Row, column: Column) -> bool:
        """Whether the square is to be run; others hold what was published, if anything."""
        rows = self.only.get(column.name)
        return row.method is not None and (rows is None or row.name in rows)


class Asked(NamedTuple):
    """One square that is run: what to make, whatever the seed."""

    row: Row
    column: Column
    labels: str | None
    boxes: str | None
    method: str
    variant: Variant
    presence: str | None = None


def layout(name: str) -> Layout:
    """Give the layout of a table; a UsageError lists those that exist."""
    if name not in LAYOUTS:
        raise UsageError(f"there is no table {name!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def asked(table: Layout) -> Iterator[Asked]:
    """Go through the squares that are run, row by row."""
    for row, column in product(table.rows, table.columns):
        if table.is_run(row, column):
            yield square(row, column)


def square(row: Row, column: Column) -> Asked:
    """Give what a row means in a column; the row must have a method."""
    assert row.method is not None
    labels, boxes, presence = (
        (None, None, None) if row.is_clean else (column.labels, column.boxes, column.presence)
    )
    implied = _implied(row.method, labels, boxes)
    variant = {
        name: value
        for name, value in row.variant.items()
        if name not in implied or implied[name] != value
    }
    return Asked(row, column, labels, boxes, row.method, variant, presence)


def amount(noise: str | None) -> float:
    """Give the rate in KIND:RATE; 0 where there is no noise."""
    return float(noise.partition(":")[2]) if noise else 0.0


def _implied(method: str, labels: str | None, boxes: str | None) -> Variant:
    """What the plain cell of a method does anyway."""
    if method not in TOLD:
        return {}
    paper = PublishedSettings()
    implied: dict[str, bool | int | float | str] = {
        "label_noise": amount(labels),
        "box_noise": amount(boxes),
        "published.queue_length": paper.queue_length,
        "published.fit_threshold": paper.fit_threshold,
        "published.confidence": paper.confidence,
    }
    if boxes:
        implied["published.alpha"] = min(max(amount(boxes), 0.2), 0.4)  # as published
    return implied


def _rates(label: int, box: int, kind: str = "uniform") -> Column:
    """Symmetric label noise and box noise, in percent."""
    word = {"uniform": "box", "gaussian": "gaussian", "jitter": "oamil"}[kind]
    shown = {"uniform": "box", "gaussian": "gaussian", "jitter": "OA-MIL"}[kind]
    return Column(
        name=f"label{label}-{word}{box}",
        title=f"label {label}, {shown} {box}",
        labels=f"symmetric:{label / 100:g}" if label else None,
        boxes=f"{kind}:{box / 100:g}" if box else None,
    )


def _pair(label: int) -> Column:
    return Column(f"pair{label}-box0", f"pair {label}, box 0", f"pair:{label / 100:g}", None)


def _presence(kind: str, share: int) -> Column:
    """Annotations missing, or put in where nothing is, in percent of all."""
    return Column(
        name=f"label0-box0-{kind}{share}",
        title=f"{kind} {share}",
        presence=f"{kind}:{share / 100:g}",
    )


def _coco(label: int, box: int) -> tuple[Column, Column]:
    """Both scores that the paper gives for COCO."""
    plain = _rates(label, box)
    return (
        Column(
            f"{plain.name}-ap50", f"{plain.title}: AP50", plain.labels, plain.boxes, "coco_ap50"
        ),
        Column(f"{plain.name}-ap", f"{plain.title}: AP", plain.labels, plain.boxes, "coco_ap"),
    )


def _rows(*methods: str) -> tuple[Row, ...]:
    return tuple(Row(method, method) for method in methods)


def _varied(method: str, setting: str, word: str, values: tuple[float, ...]) -> tuple[Row, ...]:
    """The method once for each value of a setting."""
    return tuple(Row(f"{method}, {word} {one:g}", method, {setting: one}) for one in values)


def _boxes_of(method: str) -> tuple[Row, ...]:
    stages = {"raw": "noisy", "matched": "matched", "final": "final"}
    return tuple(
        Row(f"{method}: {word}", method, figure=f"mending.boxes.{stage}.corloc")
        for word, stage in stages.items()
    )


def _labels_of(method: str) -> tuple[Row, ...]:
    judged = {word: f"judgment.{word.lower()}" for word in ("TP", "TN", "FP", "FN")}
    places = judged | {"N*": "noise_after", "discarded": "discarded", "AUROC": "loss_auroc"}
    return tuple(
        Row(f"{method}: {word}", method, figure=f"mending.labels.{place}")
        for word, place in places.items()
    )


CLEAN = Row("clean", "baseline", is_clean=True)
NOISE_FREE = _rates(0, 0)
LABELS = tuple(_rates(label, 0) for label in (20, 40, 60))
BOXES = tuple(_rates(0, box) for box in (20, 40))
PAPER_ORDER = (  # box noise 0, then 20, then 40
    *LABELS,
    *(_rates(label, 20) for label in (0, 20, 40, 60)),
    *(_rates(label, 40) for label in (0, 20, 40, 60)),
)
TABLE1_ROWS = (
    CLEAN,
    *_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "mend-paper", "mend"),
)
CORE_ROWS = (
    CLEAN,
    *_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco"),
    *_rows("br", "lr", "mend-paper", "mend"),
)
CORE_FEW = ("clean", "baseline", "ca-bbc", "mend-paper", "mend")

_ALL = (
    Layout("table1", "Accuracy under label and box noise", PAPER_ORDER, TABLE1_ROWS),
    Layout(
        "coco",
        "Accuracy under label and box noise on COCO",
        (*_coco(20, 20), *_coco(40, 40)),
        TABLE1_ROWS,
        metric="coco_ap50",
    ),
    Layout(
        "core",
        "The comparison that matters most",
        (_rates(40, 40), _rates(20, 20), _rates(40, 0), _rates(0, 40), NOISE_FREE),
        CORE_ROWS,
        only={
            **dict.fromkeys(("label20-box20", "label40-box0", "label0-box40"), CORE_FEW),
            "label0-box0": ("clean", "mend"),
        },
        records="table1",
    ),
    Layout(
        "rivals",
        "Every method in the other settings",
        (_rates(20, 20), _rates(40, 0), _rates(0, 40)),
        CORE_ROWS,
        records="table1",
    ),
    Layout(
        "no-harm",
        "What methods do to clean data",
        (NOISE_FREE,),
        (
            *_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco"),
            *_rows("br", "lr", "mend-paper", "mend"),
        ),
        compare="difference",
    ),
    Layout(
        "auto",
        "Noise rates estimated against rates told",
        (_rates(40, 40), _rates(40, 0), _rates(0, 40), _rates(20, 20), NOISE_FREE),
        (
            CLEAN,
            *_rows("baseline", "mend"),
            Row("mend, rates told", "mend", {"label_noise": TRUE, "box_noise": TRUE}),
            Row("mend: label noise found", "mend", figure="estimates.label_noise"),
            Row("mend: box noise found", "mend", figure="estimates.box_noise"),
        ),
        records="table1",
    ),
    Layout(
        "two-stage",
        "Trained afresh on mended annotations",
        (_rates(40, 40),),
        (
            CLEAN,
            Row("baseline", "baseline"),
            Row("baseline, twice the passes", "baseline", {"epochs": TWICE}),
            *_rows("mend", TWO_STAGE),
        ),
        records="table1",
    ),
    Layout("ablation-boxes", "Parts of box repair", BOXES, (CLEAN, *_rows("baseline", "cm", "br"))),
    Layout(
        "ablation-labels",
        "Parts of label repair",
        LABELS,
        (
            CLEAN,
            *_rows("baseline", "cinj", "pseudo"),
            Row("pseudo, unsure kept", "pseudo", {"published.unreliable": "keep"}),
            Row("lr", "lr"),
        ),
    ),
    Layout(
        "pair",
        "Accuracy under pair label noise",
        tuple(_pair(label) for label in (20, 30, 40)),
        (CLEAN, *_rows("baseline", "lr", "mend-paper", "mend")),
    ),
    Layout(
        "gaussian",
        "Accuracy under Gaussian box noise",
        tuple(_rates(0, box, "gaussian") for box in (20, 25, 30)),
        (CLEAN, *_rows("baseline", "br", "mend-paper", "mend")),
    ),
    Layout(
        "sensitivity-n",
        "Length of the queue",
        LABELS,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_varied("mend-paper", "published.queue_length", "N", (64, 128, 256, 512)),
        ),
    ),
    Layout(
        "sensitivity-alpha",
        "Weight of the best candidate",
        BOXES,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_varied("mend-paper", "published.alpha", "alpha", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ),
    ),
    Layout(
        "sensitivity-t-cm",
        "Threshold of centre matching",
        (*BOXES, *LABELS),
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_varied("mend-paper", "published.fit_threshold", "T_CM", (0.8, 0.85, 0.9, 0.95)),
        ),
        only={column.name: () for column in LABELS},  # a box threshold says nothing there
    ),
    Layout(
        "sensitivity-t-refine",
        "Confidence of pseudo-labels",
        (*LABELS, *BOXES),
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_varied("mend-paper", "published.confidence", "T_refine", (0.4, 0.5, 0.6, 0.7)),
        ),
        only={column.name: () for column in BOXES},  # a label threshold says nothing there
    ),
    Layout(
        "sensitivity-rate",
        "A label-noise rate told wrongly",
        LABELS,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_varied("mend-paper", "label_noise", "told", (0.2, 0.4, 0.6)),
            *_varied("mend", "label_noise", "told", (0.2, 0.4, 0.6)),
            Row("mend", "mend"),
        ),
    ),
    Layout(
        "box-noise",
        "Box noise as OA-MIL makes it",
        tuple(_rates(0, box, "jitter") for box in (10, 20, 30, 40)),
        (
            *(CLEAN, *_rows("baseline", "co-teaching", "ca-bbc", "oa-mil", "disco")),
            *_rows("br", "mend-paper", "mend"),
            *(Row(name, None) for name in ("KL loss", "SD-LocNet", "SSD-Det")),
            *(Row(name, None, is_apart=True) for name in ("FreeAnchor", "Noisy RetinaNet")),
        ),
    ),
    Layout(
        "presence",
        "Accuracy under missing and spurious annotations",
        tuple(_presence(kind, share) for kind in ("missing", "spurious") for share in (20, 40)),
        (
            *(CLEAN, *_rows("baseline", "mend-paper", "mend")),
            Row("mend, missing left out", "mend", {"mend.missing": 0.3}),
        ),
    ),
    Layout(
        "refined-boxes",
        "Boxes that agree with the truth (CorLoc at IoU 0.7)",
        PAPER_ORDER[len(LABELS) :],
        (*_boxes_of("mend-paper"), *_boxes_of("mend")),
        compare="none",
    ),
    Layout(
        "refined-labels",
        "How well labels were judged, and how wrong they are afterwards",
        tuple(column for column in PAPER_ORDER if column.labels),
        (*_labels_of("mend-paper"), *_labels_of("mend")),
        compare="none",
    ),
)
LAYOUTS: dict[str, Layout] = {one.name: one for one in _ALL}
"""Every table by its name, in the order in which lists show them."""
