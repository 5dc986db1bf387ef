"""`boxmend diff`: what two datasets do not agree in."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table
from boxmend.data.diff import Comparison, Difference, compare
from boxmend.data.formats import load
from boxmend.errors import ExitStatus

SHOWN = 20  # differences listed; --all and --json list every one


app = App(name="diff", help_format="markdown")


@app.default
def diff(
    a: Annotated[str, Parameter(help="First dataset: PATH or PATH:SPLIT.")],
    b: Annotated[str, Parameter(help="Second dataset; what it says is called new.")],
    /,
    *,
    images: Annotated[
        Path | None, Parameter(help="Folder of the images, where COCO files lie elsewhere.")
    ] = None,
    all: Annotated[bool, Parameter(help="List every difference.", negative="")] = False,
    json: Json = False,
) -> int:
    """Show which annotations differ, in what, and by how much. Exits with 1 where any does.

    Annotations are paired by id in COCO, else within their image: equal ones first, then by
    position, then by overlap.
    """
    comparison = compare(load(a, images=images), load(b, images=images))
    if json:
        print_json(comparison.to_json())
    else:
        _print(comparison, None if all else SHOWN)
    return ExitStatus.FINE if comparison.is_identical else ExitStatus.FINDINGS


def _print(comparison: Comparison, shown: int | None) -> None:
    if comparison.differences:
        headers = ("image", "annotation", "what", "label", "box (xyxy)", "iou")
        print_table(headers, [_row(one) for one in comparison.differences[:shown]])
        if shown is not None and len(comparison.differences) > shown:
            print(f"... and {len(comparison.differences) - shown:,} more (--all lists them)")
    for side, names in (
        ("first", comparison.images_only_in_a),
        ("second", comparison.images_only_in_b),
    ):
        for name in names[:shown]:
            print(f"only in the {side}: {name}")
        if shown is not None and len(names) > shown:
            print(f"... and {len(names) - shown:,} more images only in the {side}")
    counts = {
        "same": comparison.same,
        "label changed": comparison.label_changed,
        "box changed": comparison.box_changed,
        "flags changed": comparison.flags_changed,
        "added": comparison.added,
        "removed": comparison.removed,
    }
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))


def _row(one: Difference) -> tuple[object, ...]:
    identity = one.annotation_id if one.annotation_id is not None else one.new_annotation_id
    label = one.old_label or one.new_label
    if one.old_label and one.new_label and one.old_label != one.new_label:
        label = f"{one.old_label} -> {one.new_label}"
    box = one.old_box or one.new_box
    text = _box(box)
    if "box" in one.kinds:
        text = f"{_box(one.old_box)} -> {_box(one.new_box)}"
    iou = None if one.iou is None or "box" not in one.kinds else f"{one.iou:.3f}"
    what = ", ".join((*one.kinds, *one.flags))
    return one.image, str(identity), what, label, text, iou


def _box(box: tuple[float, ...] | None) -> str:
    return "" if box is None else "[" + ", ".join(f"{side:.6g}" for side in box) + "]"
