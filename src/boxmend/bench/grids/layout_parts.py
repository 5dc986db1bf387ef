"""Columns and rows of tables: noise settings, and methods with their variants."""

from collections.abc import Mapping
from dataclasses import replace

from boxmend.bench.grids.table_spec import (
    AVERAGED_WEIGHTS,
    COMMON_RECIPE,
    PUBLISHED_RECIPE,
    Column,
    References,
    Row,
    Variant,
)

AVERAGED = References("baseline, averaged weights", "clean, averaged weights")
PUBLISHED = References("baseline, published recipe", "clean, published recipe")


def noise_column(label: int, box: int, kind: str = "uniform") -> Column:
    """Return a column of symmetric label noise and box noise, in percent."""
    word = {"uniform": "box", "gaussian": "gaussian", "jitter": "oamil"}[kind]
    title_word = {"uniform": "box", "gaussian": "gaussian", "jitter": "OA-MIL"}[kind]
    return Column(
        name=f"label{label}-{word}{box}",
        title=f"label {label}, {title_word} {box}",
        labels=f"symmetric:{label / 100:g}" if label else None,
        boxes=f"{kind}:{box / 100:g}" if box else None,
    )


def pair_column(label: int) -> Column:
    """Return a column of pair label noise, in percent."""
    return Column(f"pair{label}-box0", f"pair {label}, box 0", f"pair:{label / 100:g}", None)


def presence_column(kind: str, share: int) -> Column:
    """Return a column of missing, spurious or UNA's annotations, in percent of all."""
    return Column(
        name=f"label0-box0-{kind}{share}",
        title=f"{kind.upper() if kind == 'una' else kind} {share}",
        presence=f"{kind}:{share / 100:g}",
    )


def coco_columns(label: int, box: int) -> tuple[Column, Column]:
    """Return the columns of both COCO scores of the paper."""
    plain = noise_column(label, box)
    return (
        Column(
            f"{plain.name}-ap50", f"{plain.title}: AP50", plain.labels, plain.boxes, "coco_ap50"
        ),
        Column(f"{plain.name}-ap", f"{plain.title}: AP", plain.labels, plain.boxes, "coco_ap"),
    )


def method_rows(*methods: str) -> tuple[Row, ...]:
    """Return a row for each method, named like it."""
    return tuple(Row(method, method) for method in methods)


def vary_setting(
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


def box_stage_rows(method: str) -> tuple[Row, ...]:
    """Return a row for the CorLoc of each stage of a method's boxes."""
    stages = {"raw": "noisy", "matched": "matched", "final": "final"}
    return tuple(
        Row(f"{method}: {word}", method, figure=f"mending.boxes.{stage}.corloc")
        for word, stage in stages.items()
    )


def label_figure_rows(method: str) -> tuple[Row, ...]:
    """Return a row for each figure about a method's judgement of labels."""
    judged = {word: f"judgment.{word.lower()}" for word in ("TP", "TN", "FP", "FN")}
    places = judged | {"N*": "noise_after", "discarded": "discarded", "AUROC": "loss_auroc"}
    return tuple(
        Row(f"{method}: {word}", method, figure=f"mending.labels.{place}")
        for word, place in places.items()
    )


def mending_columns(label: int, box: int, figures: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a column for each figure of the mending, by its title and place below `mending`."""
    noise = noise_column(label, box)
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
NOISE_FREE = noise_column(0, 0)
LABELS = tuple(noise_column(label, 0) for label in (20, 40, 60))
BOXES = tuple(noise_column(0, box) for box in (20, 40))
PAPER_ORDER = (  # box noise 0, then 20, then 40
    *LABELS,
    *(noise_column(label, 20) for label in (0, 20, 40, 60)),
    *(noise_column(label, 40) for label in (0, 20, 40, 60)),
)
TABLE1_ROWS = (
    CLEAN,
    *method_rows(
        "baseline", "co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "mend-paper", "mend"
    ),
)
CORE_ROWS = (
    CLEAN,
    *method_rows("baseline", "co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco"),
    *method_rows("br", "lr", "mend-paper", "mend"),
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
READING_BOX_COLUMNS = mending_columns(
    40, 40, {f"CorLoc {stage}": f"boxes.{stage}.corloc" for stage in ("noisy", "matched", "final")}
)
READING_LABEL_COLUMNS = mending_columns(40, 0, JUDGED_LABEL_FIGURES)
