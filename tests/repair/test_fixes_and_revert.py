"""Whatever a dataset looks like and an audit says: only fixes differ, and all can go back."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boxmend
from boxmend import ApplySettings, Dataset
from boxmend.auditing.fixes.table import Kind
from tests.fabricated_runs import Fix, audit_run, bytes_of
from tests.repair.drawn_documents import LABELS, SIDE, datasets, put

Object = tuple[int, str, tuple[float, ...]]


@st.composite
def fixes_of(draw: st.DrawFn, dataset: Dataset) -> list[Fix]:
    """At most one of everything for each annotation, and some that are missing."""
    names = sorted(set(LABELS) & set(dataset.label_names))
    corners = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(4, 30))
    boxes = corners.map(lambda one: (one[0] / 2, one[1] / 2, one[0] / 2 + one[2], one[1] + 33.33))
    made = []
    for row in range(len(dataset)):
        match draw(st.sampled_from(["", "label", "box", "both", "spurious", "duplicate"])):
            case "spurious":
                made.append(Fix(f"s{row}", Kind.SPURIOUS, row))
            case "duplicate" if row:
                made.append(Fix(f"d{row}", Kind.DUPLICATE, row, kept=0))
            case "label" | "both" as what:
                label = draw(st.sampled_from(names))
                made.append(Fix(f"l{row}", Kind.WRONG_LABEL, row, label=label))
                if what == "both":
                    made.append(Fix(f"b{row}", Kind.BAD_BOX, row, box=draw(boxes)))
            case "box":
                made.append(Fix(f"b{row}", Kind.BAD_BOX, row, box=draw(boxes)))
    for k in range(draw(st.integers(0, 3))):
        label, box, image = draw(st.sampled_from(names)), draw(boxes), draw(st.integers(0, 1))
        made.append(Fix(f"m{k}", Kind.MISSING, label=label, box=box, image=image))
    order: list[Fix] = draw(st.permutations(made))
    return order


def expected_objects(dataset: Dataset, made: list[Fix]) -> list[Object]:
    """The annotations after all fixes, worked out one by one."""
    removals = {one.row for one in made if one.kind in (Kind.SPURIOUS, Kind.DUPLICATE)}
    if 0 in removals and any(one.kind == Kind.DUPLICATE for one in made):
        # The first in the order of ids is taken: "d.." before "s..", and then annotation 0 stays.
        removals.remove(0)
    labels = {one.row: str(one.label) for one in made if one.kind == Kind.WRONG_LABEL}
    boxes = {one.row: one.box for one in made if one.kind == Kind.BAD_BOX}
    collected = []
    for row, image in enumerate(dataset.image_rows.tolist()):
        if row not in removals:
            label = labels.get(row) or dataset.label_names[dataset.labels[row]]
            collected.append((image, label, tuple(boxes.get(row) or dataset.boxes[row].tolist())))
    for one in made:
        if one.kind == Kind.MISSING:
            collected.append((one.image, str(one.label), tuple(one.box or ())))
    return collected


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_all_fixes_at_once_and_the_original_bytes_again(format: str, data: st.DataObject) -> None:
    _, files = data.draw(datasets(format))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        address = put(root / "data", format, files)
        before = boxmend.load(address)
        before.save(root / "plain")
        made = data.draw(fixes_of(before))
        run = audit_run(root / "run", address, made)
        boxmend.apply(run, root / "out", ApplySettings(precision=0.0))
        assert bytes_of(root / "data") == files
        ensure_same(expected_objects(before, made), boxmend.load(root / "out"))
        untouched = {f"{k}" for k in (0, 1)} - {
            str(image) for image in changed_images(before, made)
        }
        for name in files:
            if format != "coco" and Path(name).stem in untouched:
                assert (root / "out" / name).read_bytes() == files[name]

        boxmend.revert(root / "out")
        restored = bytes_of(root / "out")
        assert restored == bytes_of(root / "plain")
        differing = {name for name in files if restored[name] != files[name]}
        assert differing <= {"data.yaml"}  # whose paths are those of its new place


def changed_images(dataset: Dataset, made: list[Fix]) -> set[int]:
    return {one.image if one.row < 0 else int(dataset.image_rows[one.row]) for one in made}


def ensure_same(wanted: list[Object], after: Dataset) -> None:
    """Assert that these are the annotations, in any order; formats round at the fourth decimal."""
    limits = np.array([SIDE] * 4)
    columns = [
        (int(image), after.label_names[label], tuple(box))
        for image, label, box in zip(after.image_rows, after.labels, after.boxes, strict=True)
    ]
    assert len(columns) == len(wanted)
    key = lambda one: (one[0], one[1], *np.round(one[2], 1))  # noqa: E731  # only here
    for one, other in zip(sorted(columns, key=key), sorted(wanted, key=key), strict=True):
        assert one[:2] == other[:2]
        assert np.allclose(one[2], np.minimum(other[2], limits), rtol=0, atol=1e-2)


@pytest.mark.parametrize(("format", "to"), [("coco", "yolo"), ("voc", "coco"), ("yolo", "voc")])
def test_an_image_that_had_no_annotation_gets_one_and_loses_it_again(
    tmp_path: Path, format: str, to: str
) -> None:
    from tests.repair.drawn_documents import put_images

    folder = {"coco": "images", "voc": "JPEGImages", "yolo": "images/train"}[format]
    documents = {
        "coco": {
            "instances_train.json": '{"images": [{"id": 0, "file_name": "0.png"}], "annotations": '
            '[], "categories": [{"id": 1, "name": "van"}]}'
        },
        "voc": {
            "ImageSets/Main/train.txt": "0\n1\n",
            "Annotations/0.xml": "<annotation><filename>0.png</filename></annotation>",
            "Annotations/1.xml": "<annotation><filename>1.png</filename><object><name>van</name>"
            "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
            "</annotation>",
        },
        "yolo": {"data.yaml": "train: images/train\nval: images/train\nnames: [van]\n"},
    }[format]
    put_images(tmp_path / "data" / folder / "0.png", tmp_path / "data" / folder / "1.png")
    files = {name: text.encode() for name, text in documents.items()}
    address = put(tmp_path / "data", format, files)
    made = [Fix("m", Kind.MISSING, label="van", box=(5, 5, 20, 30))]
    run = audit_run(tmp_path / "run", address, made)
    for target in (None, to):
        out, plain = tmp_path / f"out-{target}", tmp_path / f"plain-{target}"
        boxmend.load(address).save(plain, format=target)
        boxmend.apply(run, out, format=target)
        after = boxmend.load(out)
        assert [5, 5, 20, 30] in after.boxes.round(3).tolist()
        boxmend.revert(out)
        assert bytes_of(out) == bytes_of(plain)
