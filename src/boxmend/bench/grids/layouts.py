"""The layouts of all tables: their rows and columns, and which of them are run.

They define the cells that a grid runs; `layout_parts` has their columns and rows, `table_spec` the
types.
"""

from dataclasses import replace

from boxmend.bench.grids.layout_parts import (
    AVERAGED,
    BOXES,
    CLEAN,
    CORE_METHODS,
    CORE_ROWS,
    EQUAL_FOOTING_NAMES,
    EQUAL_FOOTING_ROWS,
    JUDGED_LABEL_FIGURES,
    LABELS,
    NOISE_FREE,
    PAPER_ORDER,
    PUBLISHED,
    READING_BOX_COLUMNS,
    READING_LABEL_COLUMNS,
    READING_REFERENCES,
    READING_ROWS,
    READINGS_WITHOUT_BOXES,
    TABLE1_ROWS,
    box_stage_rows,
    coco_columns,
    label_figure_rows,
    mending_columns,
    method_rows,
    noise_column,
    pair_column,
    presence_column,
    vary_setting,
)
from boxmend.bench.grids.table_spec import (
    TRUE_RATE,
    TWICE_EPOCHS,
    TWO_STAGE,
    References,
    Row,
    TableLayout,
)
from boxmend.errors import UsageError


def get_layout(name: str) -> TableLayout:
    """Return the layout of a table; raise a UsageError for an unknown name."""
    if name not in LAYOUTS:
        raise UsageError(f"there is no table {name!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


_ALL_LAYOUTS = (
    TableLayout("table1", "Accuracy under label and box noise", PAPER_ORDER, TABLE1_ROWS),
    TableLayout(
        "coco",
        "Accuracy under label and box noise on COCO",
        (*coco_columns(20, 20), *coco_columns(40, 40)),
        TABLE1_ROWS,
        metric="coco_ap50",
    ),
    TableLayout(
        "core",
        "The comparison that matters most",
        (
            noise_column(40, 40),
            noise_column(20, 20),
            noise_column(40, 0),
            noise_column(0, 40),
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
        (noise_column(20, 20), noise_column(40, 0), noise_column(0, 40)),
        CORE_ROWS,
        records="table1",
    ),
    TableLayout(
        "equal-footing",
        "The methods on equal footing",
        (
            noise_column(40, 40),
            noise_column(20, 20),
            noise_column(40, 0),
            noise_column(0, 40),
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
            *method_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco"),
            *method_rows("br", "lr", "mend-paper", "mend"),
        ),
        compare="difference",
    ),
    TableLayout(
        "auto",
        "Estimated and given noise rates",
        (
            noise_column(40, 40),
            noise_column(40, 0),
            noise_column(0, 40),
            noise_column(20, 20),
            NOISE_FREE,
        ),
        (
            CLEAN,
            *method_rows("baseline", "mend"),
            Row("mend, rates given", "mend", {"label_noise": TRUE_RATE, "box_noise": TRUE_RATE}),
            Row("mend: estimated label noise", "mend", figure="estimates.label_noise"),
            Row("mend: estimated box noise", "mend", figure="estimates.box_noise"),
        ),
        records="table1",
    ),
    TableLayout(
        "two-stage",
        "Trained from scratch on mended annotations",
        (noise_column(40, 40),),
        (
            CLEAN,
            Row("baseline", "baseline"),
            Row("baseline, twice the epochs", "baseline", {"epochs": TWICE_EPOCHS}),
            *method_rows("mend", TWO_STAGE),
        ),
        records="table1",
    ),
    TableLayout(
        "ablation-boxes",
        "Parts of box repair",
        BOXES,
        (CLEAN, *method_rows("baseline", "cm", "br")),
    ),
    TableLayout(
        "ablation-labels",
        "Parts of label repair",
        LABELS,
        (
            CLEAN,
            *method_rows("baseline", "cinj", "pseudo"),
            Row("pseudo, unsure kept", "pseudo", {"published.unreliable": "keep"}),
            Row("lr", "lr"),
        ),
    ),
    TableLayout(
        "pair",
        "Accuracy under pair label noise",
        tuple(pair_column(label) for label in (20, 30, 40)),
        (CLEAN, *method_rows("baseline", "lr", "mend-paper", "mend")),
    ),
    TableLayout(
        "gaussian",
        "Accuracy under Gaussian box noise",
        tuple(noise_column(0, box, "gaussian") for box in (20, 25, 30)),
        (
            CLEAN,
            *method_rows("baseline", "br", "mend-paper", "mend"),
            Row("mend, shape of the noise chosen", "mend", {"mend.box_noise_shape": "auto"}),
        ),
    ),
    TableLayout(
        "sensitivity-n",
        "Length of the queue",
        LABELS,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *vary_setting("mend-paper", "published.queue_length", "N", (64, 128, 256, 512)),
        ),
    ),
    TableLayout(
        "sensitivity-alpha",
        "Weight of the best candidate",
        BOXES,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *vary_setting("mend-paper", "published.alpha", "alpha", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ),
    ),
    TableLayout(
        "sensitivity-t-cm",
        "Threshold of centre matching",
        (*BOXES, *LABELS),
        (
            *(CLEAN, Row("baseline", "baseline")),
            *vary_setting("mend-paper", "published.fit_threshold", "T_CM", (0.8, 0.85, 0.9, 0.95)),
        ),
        only={column.name: () for column in LABELS},  # a box threshold has no effect there
    ),
    TableLayout(
        "sensitivity-t-refine",
        "Confidence of pseudo-labels",
        (*LABELS, *BOXES),
        (
            *(CLEAN, Row("baseline", "baseline")),
            *vary_setting("mend-paper", "published.confidence", "T_refine", (0.4, 0.5, 0.6, 0.7)),
        ),
        only={column.name: () for column in BOXES},  # a label threshold says nothing there
    ),
    TableLayout(
        "sensitivity-rate",
        "A wrong label-noise rate",
        LABELS,
        (
            *(CLEAN, Row("baseline", "baseline")),
            *vary_setting("mend-paper", "label_noise", "given", (0.2, 0.4, 0.6)),
            *vary_setting("mend", "label_noise", "given", (0.2, 0.4, 0.6)),
            Row("mend", "mend"),
        ),
    ),
    TableLayout(
        "box-noise",
        "Box noise of OA-MIL",
        tuple(noise_column(0, box, "jitter") for box in (10, 20, 30, 40)),
        (
            *(CLEAN, *method_rows("baseline", "co-teaching", "ca-bbc", "oa-mil", "disco")),
            *method_rows("br", "mend-paper", "mend"),
            *(Row(name, None) for name in ("KL loss", "SD-LocNet", "SSD-Det")),
            *(Row(name, None, is_apart=True) for name in ("FreeAnchor", "Noisy RetinaNet")),
        ),
    ),
    TableLayout(
        "presence",
        "Accuracy under missing and spurious annotations",
        tuple(
            presence_column(kind, share) for kind in ("missing", "spurious") for share in (20, 40)
        ),
        (
            *(CLEAN, *method_rows("baseline", "mend-paper", "mend")),
            Row("mend, missing objects ignored", "mend", {"mend.missing_min_score": 0.3}),
        ),
    ),
    TableLayout(
        "una",
        "Accuracy under noise of all kinds, as in UNA",
        tuple(presence_column("una", share) for share in (10, 20, 30, 40)),
        (
            *(CLEAN, *method_rows("baseline", "mend")),
            Row("mend, missing objects ignored", "mend", {"mend.missing_min_score": 0.3}),
            Row("mend, label noise of objects", "mend", {"mend.min_object_score": 0.3}),
        ),
    ),
    TableLayout(
        "readings",
        "Readings of the published method",
        (noise_column(40, 40), noise_column(40, 0)),
        (*READING_REFERENCES, *READING_ROWS),
        only={"label40-box0": (*(row.name for row in READING_REFERENCES), *READINGS_WITHOUT_BOXES)},
        records="table1",
    ),
    TableLayout(
        "readings-mending",
        "What the readings of the published method judge and mend",
        (
            *READING_BOX_COLUMNS,
            *mending_columns(40, 40, JUDGED_LABEL_FIGURES),
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
        (*box_stage_rows("mend-paper"), *box_stage_rows("mend")),
        compare="none",
    ),
    TableLayout(
        "refined-labels",
        "Judgement of the labels, and label noise afterwards",
        tuple(column for column in PAPER_ORDER if column.labels),
        (*label_figure_rows("mend-paper"), *label_figure_rows("mend")),
        compare="none",
    ),
)
LAYOUTS: dict[str, TableLayout] = {layout.name: layout for layout in _ALL_LAYOUTS}
"""All tables by name, in the order of lists."""
