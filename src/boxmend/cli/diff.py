"""`boxmend diff`: the differences between two datasets."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table
from boxmend.data.diff import Comparison, Difference, compare
from boxmend.data.formats import load
from boxmend.errors import ExitStatus

MAX_DIFFERENCES = 20  # printed without --all


app = App(name="diff")


@app.default
def diff(
    a: Annotated[str, Parameter(help="First dataset: PATH or PATH:SPLIT.")],
    b: Annotated[str, Parameter(help="Second, newer dataset: PATH or PATH:SPLIT.")],
    /,
    *,
    images: Annotated[
        Path | None, Parameter(help="Folder of the images, if a COCO file is not next to them.")
    ] = None,
    all: Annotated[
        bool, Parameter(help="List every difference; by default 20.", negative="")
    ] = False,
    json: Json = False,
) -> int:
    """Show which annotations of two datasets differ, in what, and by how much.

    boxmend pairs COCO annotations by id, and others within their image: first equal ones, then by
    position, then by overlap. The exit status is 1 if any annotation differs.

    Example: boxmend diff data.yaml mended/data.yaml
    """
    comparison = compare(load(a, images=images), load(b, images=images))
    if json:
        print_json(comparison.to_json())
    else:
        _print(comparison, None if all else MAX_DIFFERENCES)
    return ExitStatus.FINE if comparison.is_identical else ExitStatus.FINDINGS


def _print(comparison: Comparison, max_rows: int | None) -> None:
    if comparison.differences:
        headers = ("image", "annotation", "what", "label", "box (xyxy)", "iou")
        print_table(headers, [_row(difference) for difference in comparison.differences[:max_rows]])
        if max_rows is not None and len(comparison.differences) > max_rows:
            print(f"... and {len(comparison.differences) - max_rows:,} more (--all lists them)")
    for side, names in (
        ("first", comparison.images_only_in_a),
        ("second", comparison.images_only_in_b),
    ):
        for name in names[:max_rows]:
            print(f"only in the {side}: {name}")
        if max_rows is not None and len(names) > max_rows:
            print(f"... and {len(names) - max_rows:,} more images only in the {side}")
    counts = {
        "same": comparison.same,
        "label changed": comparison.label_changed,
        "box changed": comparison.box_changed,
        "flags changed": comparison.flags_changed,
        "added": comparison.added,
        "removed": comparison.removed,
    }
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))


def _row(difference: Difference) -> tuple[object, ...]:
    old_label, new_label = difference.old_label, difference.new_label
    old_box, new_box = difference.old_box, difference.new_box
    old_id = difference.annotation_id
    identity = old_id if old_id is not None else difference.new_annotation_id
    label = old_label or new_label
    if old_label and new_label and old_label != new_label:
        label = f"{old_label} -> {new_label}"
    text = _box(old_box or new_box)
    iou = None
    if "box" in difference.kinds:
        text = f"{_box(old_box)} -> {_box(new_box)}"
        iou = None if difference.iou is None else f"{difference.iou:.3f}"
    what = ", ".join((*difference.kinds, *difference.flags))
    return difference.image, str(identity), what, label, text, iou


def _box(box: tuple[float, ...] | None) -> str:
    return "" if box is None else "[" + ", ".join(f"{side:.6g}" for side in box) + "]"
