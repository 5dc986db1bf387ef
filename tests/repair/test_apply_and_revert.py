"""Whatever a dataset looks like and a run says: only mended fields differ, and all can go back."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boxmend
from boxmend import ApplySettings, Dataset
from boxmend.runs.ledger import Judgement
from tests.fabricated_runs import Visit, bytes_of, drawn, finished_run
from tests.repair.drawn_documents import LABELS, datasets, put

MAY_DIFFER = {"category_id", "bbox", "area", "iscrowd", "boxmend"}


@st.composite
def visits(draw: st.DrawFn, n: int) -> list[Visit]:
    """Two epochs of visits; some boxes barely move, some leave the image."""
    drawn_visits = []
    for epoch in range(2):
        for row in range(n):
            corner, extent = draw(st.floats(-5, 40)), draw(st.floats(4, 40))
            moved = (corner, corner / 2, corner + extent, corner / 2 + extent * 1.25)
            drawn_visits.append(
                Visit(
                    epoch,
                    row,
                    draw(st.sampled_from(list(Judgement))),
                    draw(st.integers(0, len(LABELS) - 1)),
                    draw(st.sampled_from([0.25, 0.5, 0.75])),
                    draw(st.sampled_from([None, moved])),
                    draw(st.booleans()),
                )
            )
    return drawn_visits


@st.composite
def choices(draw: st.DrawFn, format: str) -> ApplySettings:
    return ApplySettings(
        draw(st.sampled_from(["labels", "boxes", "labels,boxes"])),
        draw(st.sampled_from([0.0, 0.5])),
        draw(st.sampled_from(["keep", "drop"] + ["mark"] * (format != "yolo"))),
    )


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_apply_and_revert_give_back_the_original_bytes(format: str, data: st.DataObject) -> None:
    annotations, files = data.draw(datasets(format))
    drawn_visits = data.draw(visits(len(annotations)))
    wanted = data.draw(choices(format))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        address = put(root / "data", format, files)
        before = boxmend.load(address)
        before.save(root / "plain")
        names = len(before.label_names)  # VOC knows those that occur
        drawn_visits = [replace(visit, label=(visit.label or 0) % names) for visit in drawn_visits]
        run = finished_run(root / "run", address, drawn_visits)
        result = boxmend.apply(run, root / "out", wanted)
        assert bytes_of(root / "data") == files
        ensure_only_mended(before, boxmend.load(root / "out"), result, wanted)
        if format == "coco":
            ensure_other_keys_stay(root, result)

        boxmend.revert(root / "out")
        restored = bytes_of(root / "out")
        assert restored == bytes_of(root / "plain")
        differing = {name for name in files if restored[name] != files[name]}
        assert differing <= {"data.yaml"}  # whose paths are those of its new place


def ensure_only_mended(before: Dataset, after: Dataset, result: Any, wanted: ApplySettings) -> None:
    """Assert that the datasets differ in what the result lists, and in nothing else."""
    changes = result.changes
    labels, boxes, is_left = before.labels.copy(), before.boxes.copy(), np.ones(len(before), bool)
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    gone = changes.rows[changes.is_discarded]
    is_marked = before.is_ignored.copy()
    if wanted.discarded == "drop":
        is_left[gone] = False
    is_marked[gone] = True
    names = np.array(before.label_names)[labels[is_left]]
    assert np.array_equal(np.array(after.label_names)[after.labels], names)
    assert np.allclose(after.boxes, boxes[is_left], rtol=0, atol=1e-3)
    assert after.image_rows.tolist() == before.image_rows[is_left].tolist()
    assert after.is_ignored.tolist() == is_marked[is_left].tolist()
    assert after.images.file_names == before.images.file_names
    if wanted.discarded != "drop":
        assert after.annotation_ids.tolist() == before.annotation_ids.tolist()


def ensure_other_keys_stay(root: Path, result: Any) -> None:
    old, new = (
        json.loads((root / place / "instances_train.json").read_bytes())
        for place in ("data", "out")
    )
    assert {key: new[key] for key in new if key != "annotations"} == {
        key: old[key] for key in old if key != "annotations"
    }
    entries = {entry["id"]: entry for entry in old["annotations"]}
    changed = {old["annotations"][row]["id"] for row in result.changes.rows.tolist()}
    for entry in new["annotations"]:
        was = entries[entry["id"]]
        differing = {key for key in entry.keys() | was.keys() if entry.get(key) != was.get(key)}
        assert differing <= (MAY_DIFFER if entry["id"] in changed else set())
        if entry["id"] in changed:
            assert entry["boxmend"]["reason"]
            assert ("mine" in entry["boxmend"]) == ("mine" in (was.get("boxmend") or {}))


@pytest.mark.parametrize(("format", "to"), [("coco", "yolo"), ("voc", "coco"), ("yolo", "voc")])
def test_what_was_converted_goes_back_to_the_conversion(
    tmp_path: Path, format: str, to: str
) -> None:
    address = drawn(tmp_path, format)
    boxmend.load(address).save(tmp_path / "plain", format=to)
    run_visits = [
        Visit(0, 0, Judgement.RELABELLED, 1, 1.0, (12, 10, 30, 50)),
        Visit(0, 2, Judgement.DISCARDED, 1, 0.5),
    ]
    run = finished_run(tmp_path / "run", address, run_visits)
    boxmend.apply(run, tmp_path / "out", ApplySettings(discarded="drop"), format=to)
    assert bytes_of(tmp_path / "out") != bytes_of(tmp_path / "plain")
    boxmend.revert(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")


def test_two_datasets_joined_go_back_to_the_joined_file(tmp_path: Path) -> None:
    addresses = [drawn(tmp_path / name, "coco") for name in ("x", "y")]
    boxmend.load(*addresses).save(tmp_path / "plain")
    run = finished_run(tmp_path / "run", addresses, [Visit(0, 5, Judgement.RELABELLED, 0, 1.0)])
    boxmend.apply(run, tmp_path / "out")
    entries = json.loads((tmp_path / "out/instances_train.json").read_bytes())["annotations"]
    assert [entry["id"] for entry in entries if "boxmend" in entry] == [entries[5]["id"]]
    boxmend.revert(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")
