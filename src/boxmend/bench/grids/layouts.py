"""The layouts of all tables: their rows and columns, and which of them are run.

They define the cells that a grid runs; `table_spec` has the types.
"""

from collections.abc import Mapping
from dataclasses import replace

from boxmend.bench.grids.table_spec import (
    AVERAGED_WEIGHTS,
    COMMON_RECIPE,
    PUBLISHED_RECIPE,
    TRUE_RATE,
    TWICE_EPOCHS,
    TWO_STAGE,
    Column,
    References,
    Row,
    TableLayout,
    Variant,
)
from boxmend.errors import UsageError

AVERAGED = References("baseline, averaged weights", "clean, averaged weights")
PUBLISHED = References("baseline, published recipe", "clean, published recipe")


def get_layout(name: str) -> TableLayout:
    """Return the layout of a table; raise a UsageError for an unknown name."""
    if name not in LAYOUTS:
        raise UsageError(f"there is no table {name!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def _noise_column(label: int, box: int, kind: str = "uniform") -> Column:
    """Return a column of symmetric label noise and box noise, in percent."""
    word = {"uniform": "box", "gaussian": "gaussian", "jitter": "oamil"}[kind]
    title_word = {"uniform": "box", "gaussian": "gaussian", "jitter": "OA-MIL"}[kind]
    return Column(
        name=f"label{label}-{word}{box}",
        title=f"label {label}, {title_word} {box}",
        labels=f"symmetric:{label / 100:g}" if label else None,
        boxes=f"{kind}:{box / 100:g}" if box else None,
    )


def _pair_column(label: int) -> Column:
    return Column(f"pair{label}-box0", f"pair {label}, box 0", f"pair:{label / 100:g}", None)


def _presence_column(kind: str, share: int) -> Column:
    """Return a column of missing or spurious annotations, in percent of all."""
    return Column(
        name=f"label0-box0-{kind}{share}",
        title=f"{kind} {share}",
        presence=f"{kind}:{share / 100:g}",
    )


def _coco_columns(label: int, box: int) -> tuple[Column, Column]:
    """Return the columns of both COCO scores of the paper."""
    plain = _noise_column(label, box)
    return (
        Column(
            f"{plain.name}-ap50", f"{plain.title}: AP50", plain.labels, plain.boxes, "coco_ap50"
        ),
        Column(f"{plain.name}-ap", f"{plain.title}: AP", plain.labels, plain.boxes, "coco_ap"),
    )


def _method_rows(*methods: str) -> tuple[Row, ...]:
    return tuple(Row(method, method) for method in methods)


def _vary_setting(
    method: str, setting: str, word: str, values: tuple[float, ...]
) -> tuple[Row, ...]:
    """Return a row of the method for each value of a setting."""
    return tuple(Row(f"{method}, {word} {value:g}", method, {setting: value}) for value in values)


def _compare_with(row: Row, references: References, words: str) -> tuple[Row, Row]:
    """Return a row, and one that shows its share by other references."""
    name = f"{row.name} ({words})"
    return row, replace(row, name=name, references=references, is_share_only=True)


def _average_weights(row: Row) -> tuple[Row, Row]:
    """Return the row of a method with averaged weights, with shares by both kinds of references."""
    variant = {**row.variant, **AVERAGED_WEIGHTS}
    averaged = replace(row, name=f"{row.name}, averaged weights", variant=variant)
    return _compare_with(averaged, AVERAGED, "averaged references")


def _box_stage_rows(method: str) -> tuple[Row, ...]:
    stages = {"raw": "noisy", "matched": "matched", "final": "final"}
    return tuple(
        Row(f"{method}: {word}", method, figure=f"mending.boxes.{stage}.corloc")
        for word, stage in stages.items()
    )


def _label_figure_rows(method: str) -> tuple[Row, ...]:
    judged = {word: f"judgment.{word.lower()}" for word in ("TP", "TN", "FP", "FN")}
    places = judged | {"N*": "noise_after", "discarded": "discarded", "AUROC": "loss_auroc"}
    return tuple(
        Row(f"{method}: {word}", method, figure=f"mending.labels.{place}")
        for word, place in places.items()
    )


def _mending_columns(label: int, box: int, figures: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a column for each figure of the mending, by its title and place below `mending`."""
    noise = _noise_column(label, box)
    return tuple(
        replace(
            noise,
            name=f"{noise.name}-{title.replace(' ', '-')}",
            title=f"{noise.title}: {title}",
            metric=f"mending.{place}",
        )
        for title, place in figures.items()
    )


CLEAN = Row("clean", "baseline", is_clean=True)
NOISE_FREE = _noise_column(0, 0)
LABELS = tuple(_noise_column(label, 0) for label in (20, 40, 60))
BOXES = tuple(_noise_column(0, box) for box in (20, 40))
PAPER_ORDER = (  # box noise 0, then 20, then 40
    *LABELS,
    *(_noise_column(label, 20) for label in (0, 20, 40, 60)),
    *(_noise_column(label, 40) for label in (0, 20, 40, 60)),
)
TABLE1_ROWS = (
    CLEAN,
    *_method_rows(
        "baseline", "co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "mend-paper", "mend"
    ),
)
CORE_ROWS = (
    CLEAN,
    *_method_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco"),
    *_method_rows("br", "lr", "mend-paper", "mend"),
)
CORE_METHODS = ("clean", "baseline", "ca-bbc", "mend-paper", "mend")
COMMON = Row("mend-paper, common recipe", "mend-paper", COMMON_RECIPE)
EQUAL_FOOTING_ROWS = (
    CLEAN,
    Row("baseline", "baseline"),
    Row(AVERAGED.clean, "baseline", AVERAGED_WEIGHTS, is_clean=True),
    Row(AVERAGED.baseline, "baseline", AVERAGED_WEIGHTS),
    Row(PUBLISHED.clean, "baseline", PUBLISHED_RECIPE, is_clean=True),
    Row(PUBLISHED.baseline, "baseline", PUBLISHED_RECIPE),
    *_compare_with(Row("mend-paper", "mend-paper"), PUBLISHED, "references of its recipe"),
    *(COMMON, *_average_weights(COMMON)),
    *(Row("ca-bbc", "ca-bbc"), *_average_weights(Row("ca-bbc", "ca-bbc"))),
    *(Row("oa-mil", "oa-mil"), *_average_weights(Row("oa-mil", "oa-mil"))),
    *_compare_with(Row("mend", "mend"), AVERAGED, "averaged references"),
)
EQUAL_FOOTING_NAMES = tuple(
    row.name for row in EQUAL_FOOTING_ROWS if row.method == "baseline" or not row.variant
)
"""The rows to run at less noise than 40/40: without the variants of expensive methods."""

OVER_FOREGROUND: Variant = {"published.judged_classes": "foreground"}
IGNORED: Variant = {"published.discarded": "ignore"}
AT_PROPOSAL: Variant = {"published.judged_box": "proposal"}
AT_ANNOTATION: Variant = {"published.judged_box": "annotation"}
ONE_PASS: Variant = {"warm_up": 0.0833}  # of 12 epochs; mmdetection's epoch on VOC is three
MANY_ROIS: Variant = {"rois": 512}
SMALL_BATCH: Variant = {"batch_size": 2, "optimisation.lr": 0.01}
OF_SMALL_BATCH = References("baseline, batch of 2", "clean, batch of 2")
READING_ROWS = (
    Row("mend-paper", "mend-paper"),
    Row("foreground", "mend-paper", OVER_FOREGROUND),
    Row("discarded ignored", "mend-paper", IGNORED),
    Row("judged at p*", "mend-paper", AT_PROPOSAL),
    Row("judged at b", "mend-paper", AT_ANNOTATION),
    Row("warm-up of one pass", "mend-paper", ONE_PASS),
    Row("512 RoIs", "mend-paper", MANY_ROIS),
    Row("batch of 2", "mend-paper", SMALL_BATCH, references=OF_SMALL_BATCH),
    Row("foreground, ignored", "mend-paper", {**OVER_FOREGROUND, **IGNORED}),
    Row("foreground, ignored, p*", "mend-paper", {**OVER_FOREGROUND, **IGNORED, **AT_PROPOSAL}),
)
"""The literal reading of the paper, others, and combinations of them."""
READINGS_WITHOUT_BOXES = tuple(
    row.name for row in READING_ROWS if "published.judged_box" not in row.variant
)
"""The readings that differ without box noise, where b, b* and the judged box are one."""
READING_REFERENCES = (
    CLEAN,
    Row("baseline", "baseline"),
    Row(OF_SMALL_BATCH.clean, "baseline", SMALL_BATCH, is_clean=True),
    Row(OF_SMALL_BATCH.baseline, "baseline", SMALL_BATCH),
)
JUDGED_LABEL_FIGURES = {
    "TP": "labels.judgment.tp",
    "TN": "labels.judgment.tn",
    "N*": "labels.noise_after",
    "discarded": "labels.discarded",
}
"""Figures of the supplement by title; FP and FN are what TN and TP leave of 100 %."""
READING_BOX_COLUMNS = _mending_columns(
    40, 40, {f"CorLoc {stage}": f"boxes.{stage}.corloc" for stage in ("noisy", "matched", "final")}
)
READING_LABEL_COLUMNS = _mending_columns(40, 0, JUDGED_LABEL_FIGURES)

_ALL_LAYOUTS = (
    TableLayout("table1", "Accuracy under label and box noise", PAPER_ORDER, TABLE1_ROWS),
    TableLayout(
        "coco",
        "Accuracy under label and box noise on COCO",
        (*_coco_columns(20, 20), *_coco_columns(40, 40)),
        TABLE1_ROWS,
        metric="coco_ap50",
    ),
    TableLayout(
        "core",
        "The comparison that matters most",
        (
            _noise_column(40, 40),
            _noise_column(20, 20),
            _noise_column(40, 0),
            _noise_column(0, 40),
            NOISE_FREE,
        ),
        CORE_ROWS,
        only={
            **dict.fromkeys(("label20-box20", "label40-box0", "label0-box40"), CORE_METHODS),
            "label0-box0": ("clean", "mend"),
        },
        records="table1",
    ),
    TableLayout(
        "rivals",
        "Every method in the other settings",
        (_noise_column(20, 20), _noise_column(40, 0), _noise_column(0, 40)),
        CORE_ROWS,
        records="table1",
    ),
    TableLayout(
        "equal-footing",
        "The methods on equal footing",
        (
            _noise_column(40, 40),
            _noise_column(20, 20),
            _noise_column(40, 0),
            _noise_column(0, 40),
            NOISE_FREE,
        ),
        EQUAL_FOOTING_ROWS,
        only={
            **dict.fromkeys(("label20-box20", "label40-box0", "label0-box40"), EQUAL_FOOTING_NAMES),
            "label0-box0": ("clean", AVERAGED.clean, PUBLISHED.clean, "mend"),
        },
    ),
    TableLayout(
        "no-harm",
        "Effect of the methods on clean data",
        (NOISE_FREE,),
        (
            *_method_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco"),
            *_method_rows("br", "lr", "mend-paper", "mend"),
        ),
        compare="difference",
    ),
    TableLayout(
        "auto",
        "Estimated and given noise rates",
        (
            _noise_column(40, 40),
            _noise_column(40, 0),
            _noise_column(0, 40),
            _noise_column(20, 20),
            NOISE_FREE,
        ),
        (
            CLEAN,
            *_method_rows("baseline", "mend"),
            Row("mend, rates given", "mend", {"label_noise": TRUE_RATE, "box_noise": TRUE_RATE}),
            Row("mend: estimated label noise", "mend", figure="estimates.label_noise"),
            Row("mend: estimated box noise", "mend", figure="estimates.box_noise"),
        ),
        records="table1",
    ),
    TableLayout(
        "two-stage",
        "Trained from scratch on mended annotations",
        (_noise_column(40, 40),),
        (
            CLEAN,
            Row("baseline", "baseline"),
            Row("baseline, twice the epochs", "baseline", {"epochs": TWICE_EPOCHS}),
            *_method_rows("mend", TWO_STAGE),
        ),
        records="table1",
    ),
    TableLayout(
        "ablation-boxes",
        "Parts of box repair",
        BOXES,
        (CLEAN, *_method_rows("baseline", "cm", "br")),
    ),
    TableLayout(
        "ablation-labels",
        "Parts of label repair",
        LABELS,
        (
            CLEAN,
            *_method_rows("baseline", "cinj", "pseudo"),
            Row("pseudo, unsure kept", "pseudo", {"published.unreliable": "keep"}),
            Row("lr", "lr"),
        ),
    ),
    TableLayout(
        "pair",
        "Accuracy under pair label noise",
        tuple(_pair_column(label) for label in (20, 30, 40)),
        (CLEAN, *_method_rows("baseline", "lr", "mend-paper", "mend")),
    ),
    TableLayout(
        "gaussian",
        "Accuracy under Gaussian box noise",
        tuple(_noise_column(0, box, "gaussian") for box in (20, 25, 30)),
        (CLEAN, *_method_rows("baseline", "br", "mend-paper", "mend")),
    ),
    TableLayout(
        "sensitivity-n",
        "Length of the queue",
        LABELS,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_vary_setting("mend-paper", "published.queue_length", "N", (64, 128, 256, 512)),
        ),
    ),
    TableLayout(
        "sensitivity-alpha",
        "Weight of the best candidate",
        BOXES,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_vary_setting("mend-paper", "published.alpha", "alpha", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ),
    ),
    TableLayout(
        "sensitivity-t-cm",
        "Threshold of centre matching",
        (*BOXES, *LABELS),
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_vary_setting("mend-paper", "published.fit_threshold", "T_CM", (0.8, 0.85, 0.9, 0.95)),
        ),
        only={column.name: () for column in LABELS},  # a box threshold has no effect there
    ),
    TableLayout(
        "sensitivity-t-refine",
        "Confidence of pseudo-labels",
        (*LABELS, *BOXES),
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_vary_setting("mend-paper", "published.confidence", "T_refine", (0.4, 0.5, 0.6, 0.7)),
        ),
        only={column.name: () for column in BOXES},  # a label threshold says nothing there
    ),
    TableLayout(
        "sensitivity-rate",
        "A wrong label-noise rate",
        LABELS,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *_vary_setting("mend-paper", "label_noise", "given", (0.2, 0.4, 0.6)),
            *_vary_setting("mend", "label_noise", "given", (0.2, 0.4, 0.6)),
            Row("mend", "mend"),
        ),
    ),
    TableLayout(
        "box-noise",
        "Box noise of OA-MIL",
        tuple(_noise_column(0, box, "jitter") for box in (10, 20, 30, 40)),
        (
            *(CLEAN, *_method_rows("baseline", "co-teaching", "ca-bbc", "oa-mil", "disco")),
            *_method_rows("br", "mend-paper", "mend"),
            *(Row(name, None) for name in ("KL loss", "SD-LocNet", "SSD-Det")),
            *(Row(name, None, is_apart=True) for name in ("FreeAnchor", "Noisy RetinaNet")),
        ),
    ),
    TableLayout(
        "presence",
        "Accuracy under missing and spurious annotations",
        tuple(
            _presence_column(kind, share) for kind in ("missing", "spurious") for share in (20, 40)
        ),
        (
            *(CLEAN, *_method_rows("baseline", "mend-paper", "mend")),
            Row("mend, missing objects ignored", "mend", {"mend.missing_min_score": 0.3}),
        ),
    ),
    TableLayout(
        "readings",
        "Readings of the published method",
        (_noise_column(40, 40), _noise_column(40, 0)),
        (*READING_REFERENCES, *READING_ROWS),
        only={"label40-box0": (*(row.name for row in READING_REFERENCES), *READINGS_WITHOUT_BOXES)},
        records="table1",
    ),
    TableLayout(
        "readings-mending",
        "What the readings of the published method judge and mend",
        (
            *READING_BOX_COLUMNS,
            *_mending_columns(40, 40, JUDGED_LABEL_FIGURES),
            *READING_LABEL_COLUMNS,
        ),
        tuple(replace(row, references=References()) for row in READING_ROWS),
        only=dict.fromkeys(
            (column.name for column in READING_LABEL_COLUMNS), READINGS_WITHOUT_BOXES
        ),
        compare="none",
        metric="mending",
    ),
    TableLayout(
        "refined-boxes",
        "Boxes that agree with the truth (CorLoc at IoU 0.7)",
        PAPER_ORDER[len(LABELS) :],
        (*_box_stage_rows("mend-paper"), *_box_stage_rows("mend")),
        compare="none",
    ),
    TableLayout(
        "refined-labels",
        "Judgement of the labels, and label noise afterwards",
        tuple(column for column in PAPER_ORDER if column.labels),
        (*_label_figure_rows("mend-paper"), *_label_figure_rows("mend")),
        compare="none",
    ),
)
LAYOUTS: dict[str, TableLayout] = {layout.name: layout for layout in _ALL_LAYOUTS}
"""All tables by name, in the order of lists."""
