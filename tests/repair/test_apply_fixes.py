"""`apply` of audits: which fixes are made, in which words, and what people say before all."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend import ApplySettings, Dataset
from boxmend.auditing.fixes.table import FIXES_FILE, Kind, write_fixes
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.data.fingerprint import fingerprint
from boxmend.errors import DataError, UsageError
from boxmend.runs.ledger import Judgement as Judgment
from tests.fabricated_runs import Fix, Visit, audit_run, bytes_of, drawn, finished_run, table_of

# Boxes of `drawn`: (10, 10, 30, 50) and (40, 20, 60, 40) on a, (5, 5, 25, 15) and (50, 50, 90, 70)
# on b; van, truck, bus, van.
LABEL = Fix("l", Kind.WRONG_LABEL, 0, 1.0, label="truck", reason="seen as truck")
BOX = Fix("b", Kind.BAD_BOX, 0, 0.9, box=(12, 10, 30, 50), reason="tighter")
MISSING = Fix("m", Kind.MISSING, p_fix=0.8, label="bus", box=(60, 60, 80.5, 90), reason="=unseen")
SPURIOUS = Fix("s", Kind.SPURIOUS, 1, 0.7, reason="nothing there")
DUPLICATE = Fix("d", Kind.DUPLICATE, 2, 0.6, kept=3, reason="twice")
ALL = [LABEL, BOX, MISSING, SPURIOUS, DUPLICATE]  # means: 1, 0.95, 0.9, 0.85, 0.8


def objects(dataset: Dataset) -> list[tuple[str, str, list[float]]]:
    """Image, label and box of each annotation."""
    return [
        (dataset.images.file_names[image], dataset.label_names[label], box)
        for image, label, box in zip(
            dataset.image_rows.tolist(),
            dataset.labels.tolist(),
            dataset.boxes.round(4).tolist(),
            strict=True,
        )
    ]


def apply_audit(folder: Path, format: str, precision: float, *verdicts: Verdict) -> Any:
    run = audit_run(folder / "run", drawn(folder, format), ALL, verdicts)
    result = boxmend.apply(run, folder / "out", ApplySettings(precision=precision))
    return result, objects(boxmend.load(folder / "out"))


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_all_kinds_of_fixes_are_made_at_once(tmp_path: Path, format: str) -> None:
    result, made = apply_audit(tmp_path, format, 0.8)
    assert sorted(made) == [
        ("a.png", "bus", [60, 60, 80.5, 90]),
        ("a.png", "truck", [12, 10, 30, 50]),
        ("b.png", "van", [50, 50, 90, 70]),
    ]
    assert result.to_json() == {
        "annotations": 4,
        "fixes_taken": 5,
        "expected_precision": 0.8,
        "left_for_review": 0,
        "left_likely_wrong": 0,
        "accepted_by_people": 0,
        "added": 1,
        "removed": 2,
        "labels_changed": 1,
        "boxes_moved": 1,
    }
    boxmend.load(tmp_path / "data").save(tmp_path / "plain")
    boxmend.revert(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")


def test_as_many_as_the_precision_allows_and_no_more(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL)
    counts = {}
    for precision in (None, 1.0, 0.9, 0.87, 0.0):
        settings = ApplySettings(precision=precision)
        applied = boxmend.apply(run, tmp_path / f"{precision}", settings).to_json()
        counts[precision] = applied["fixes_taken"], applied["left_for_review"]
    assert counts == {None: (2, 3), 1.0: (1, 4), 0.9: (3, 2), 0.87: (3, 2), 0.0: (5, 0)}


def test_only_some_kinds_are_made(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL)
    settings = ApplySettings(only="missing, duplicates", precision=0.0)
    applied = boxmend.apply(run, tmp_path / "out", settings).to_json()
    assert (applied["fixes_taken"], applied["added"], applied["removed"]) == (2, 1, 1)
    assert (applied["labels_changed"], applied["boxes_moved"], applied["left_for_review"]) == (
        0,
        0,
        0,
    )


def test_every_fix_is_listed(tmp_path: Path) -> None:
    apply_audit(tmp_path, "coco", 0.0, Verdict("s", "accept"))
    with (tmp_path / "out/changes.csv").open(newline="") as file:
        rows = {row["kind"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["wrong label", "bad box", "missing", "spurious", "duplicate"]
    label, missing, spurious = rows["wrong label"], rows["missing"], rows["spurious"]
    assert (label["annotation_id"], label["image"], label["fix"]) == ("10", "a.png", "l")
    assert (label["old_label"], label["new_label"]) == ("van", "truck")
    assert (label["p_wrong"], label["p_fix"], label["accepted"]) == ("0.875", "1", "")
    assert [rows["bad box"][f"{when}_x1"] for when in ("old", "new")] == ["10", "12"]
    assert (missing["annotation_id"], missing["old_label"], missing["old_x1"]) == ("", "", "")
    assert (missing["new_label"], missing["new_x2"]) == ("bus", "80.5")
    assert missing["reason"] == "'=unseen"  # no formula
    assert (spurious["old_label"], spurious["new_label"], spurious["new_x1"]) == ("truck", "", "")
    assert (spurious["p_fix"], spurious["accepted"]) == ("1", "yes")
    assert spurious["reason"] == "nothing there; accepted"


def test_notes_say_why(tmp_path: Path) -> None:
    apply_audit(tmp_path, "coco", 0.85)
    document = json.loads((tmp_path / "out/instances_train.json").read_bytes())
    notes = {entry["id"]: entry.get("boxmend") for entry in document["annotations"]}
    assert notes == {
        10: {"confidence": 0.9, "reason": "seen as truck; tighter"},
        12: None,
        13: None,
        14: {"confidence": 0.8, "reason": "=unseen"},
    }


def test_the_id_of_a_removed_annotation_is_not_given_anew(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = audit_run(tmp_path / "run", address, [MISSING, Fix("s", Kind.SPURIOUS, 3)])
    boxmend.apply(run, tmp_path / "out", ApplySettings(precision=0.0))
    ids = boxmend.load(tmp_path / "out").annotation_ids.tolist()
    assert ids == [10, 11, 12, 14]


def test_people_go_before_the_model(tmp_path: Path) -> None:
    result, made = apply_audit(
        tmp_path,
        "coco",
        1.0,
        Verdict("l", "reject", mode="pattern"),
        Verdict("s", "accept", mode="pattern"),
        Verdict("gone", "accept"),
    )
    assert made == [
        ("a.png", "van", [10, 10, 30, 50]),
        ("b.png", "bus", [5, 5, 25, 15]),
        ("b.png", "van", [50, 50, 90, 70]),
    ]
    assert result.taken.num_stale == 1
    assert result.to_json()["accepted_by_people"] == 1


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict("l", "accept", label="bus"), ("a.png", "bus", [10, 10, 30, 50])),
        (Verdict("l", "accept", box=(1, 2, 30, 50)), ("a.png", "truck", [1, 2, 30, 50])),
        (Verdict("b", "accept", box=(1, 2, 30, 50)), ("a.png", "van", [1, 2, 30, 50])),
        (Verdict("b", "accept", label="bus"), ("a.png", "bus", [12, 10, 30, 50])),
        (Verdict("b", "accept", box=(-5, 2, 130, 50)), ("a.png", "van", [0, 2, 100, 50])),
        (Verdict("b", "accept", box=(10.004, 2.346, 30, 50)), ("a.png", "van", [10, 2.35, 30, 50])),
        (Verdict("m", "accept", label="van"), ("a.png", "van", [60, 60, 80.5, 90])),
        (Verdict("m", "accept", box=(1, 2, 3, 4)), ("a.png", "bus", [1, 2, 3, 4])),
        # what a person gives a label or a box stays
        (Verdict("s", "accept", label="bus"), ("a.png", "bus", [40, 20, 60, 40])),
        (Verdict("d", "accept", box=(5, 5, 30, 15)), ("b.png", "bus", [5, 5, 30, 15])),
    ],
)
def test_people_give_other_labels_and_boxes(
    tmp_path: Path, verdict: Verdict, expected: tuple[str, str, list[float]]
) -> None:
    made = [one for one in ALL if one.id == verdict.fix]
    address = drawn(tmp_path, "coco")
    before = objects(boxmend.load(address))
    run = audit_run(tmp_path / "run", address, made, [verdict])
    boxmend.apply(run, tmp_path / "out", ApplySettings(precision=1.0))
    after = objects(boxmend.load(tmp_path / "out"))
    assert [one for one in after if one not in before] == [expected]
    assert len(after) == len(before) + (verdict.fix == "m")


def test_a_side_that_hardly_moves_keeps_its_number(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco", boxes=[(10.123456, 10, 30, 50)])
    made = [Fix("b", Kind.BAD_BOX, 0, box=(10.12, 10, 28.456, 50))]
    boxmend.apply(audit_run(tmp_path / "run", address, made), tmp_path / "out")
    assert boxmend.load(tmp_path / "out").boxes.round(6).tolist() == [[10.123456, 10, 28.46, 50]]


def test_what_people_say_of_a_label_holds_against_another_fix(tmp_path: Path) -> None:
    _, made = apply_audit(tmp_path, "coco", 0.9, Verdict("b", "accept", label="bus"))
    assert made[0] == ("a.png", "bus", [12, 10, 30, 50])


def test_both_fixes_of_an_annotation_are_made(tmp_path: Path) -> None:
    _, made = apply_audit(tmp_path, "voc", 0.95)
    assert made[0] == ("a.png", "truck", [12, 10, 30, 50])
    text = (tmp_path / "out/Annotations/a.xml").read_text()
    assert "seen as truck; tighter" in text


def test_nothing_taken_is_the_dataset_as_it_was(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    before = (Path(address) / "instances_train.json").read_bytes()
    result = boxmend.apply(audit_run(tmp_path / "run", address, []), tmp_path / "out")
    assert (tmp_path / "out/instances_train.json").read_bytes() == before
    assert result.to_json()["expected_precision"] is None


def test_a_training_run_needs_an_audit_for_a_precision(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    visits = [Visit(0, 1, Judgment.RELABELLED, 0, 0.75)]
    run = finished_run(tmp_path / "run", address, visits)
    with pytest.raises(UsageError, match=f"`boxmend audit {run}` makes one"):
        boxmend.apply(run, tmp_path / "out", ApplySettings(precision=0.9))
    with pytest.raises(UsageError, match=r"only is 'missing', .* `boxmend audit RUN`"):
        boxmend.apply(run, tmp_path / "out", ApplySettings(only="labels,missing"))
    assert not (tmp_path / "out").exists()

    dataset = boxmend.load(address)
    write_fixes(run / FIXES_FILE, dataset, table_of(dataset, ALL), fingerprint(dataset))
    by_fixes = boxmend.apply(run, tmp_path / "a", ApplySettings(precision=0.0)).to_json()
    assert by_fixes["fixes_taken"] == 5
    settled = boxmend.apply(run, tmp_path / "b").to_json()  # without a precision as ever
    assert (settled["labels_changed"], settled["discarded"]) == (1, "keep")


def test_verdicts_on_the_fixes_of_a_training_run_are_gone_by(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = finished_run(tmp_path / "run", address, [Visit(0, 1, Judgment.RELABELLED, 0, 0.75)])
    dataset = boxmend.load(address)
    write_fixes(run / FIXES_FILE, dataset, table_of(dataset, ALL), fingerprint(dataset))
    append_verdicts(run, [Verdict("l", "reject"), Verdict("d", "accept")])
    applied = boxmend.apply(run, tmp_path / "a").to_json()
    assert (applied["fixes_taken"], applied["accepted_by_people"], applied["removed"]) == (1, 1, 1)
    visits = ApplySettings(min_confidence=0.5)  # asks for visits in so many words
    assert boxmend.apply(run, tmp_path / "b", visits).to_json()["labels_changed"] == 1


@pytest.mark.parametrize("choices", [{"min_confidence": 0.5}, {"discarded": "drop"}])
def test_options_of_settled_visits_do_not_apply_to_fixes(
    tmp_path: Path, choices: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="apply to the visits of a training, not to fixes"):
        ApplySettings(precision=0.9, **choices)
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL)
    with pytest.raises(UsageError, match="apply to the visits of a training, not to fixes"):
        boxmend.apply(run, tmp_path / "out", ApplySettings(**choices))


def ensure_refused(run: Path, words: str) -> None:
    with pytest.raises(DataError, match=words):
        boxmend.apply(run, run.parent / "out")
    assert not (run.parent / "out").exists()


def test_polygons_that_an_audit_took_for_boxes_are_no_hindrance(tmp_path: Path) -> None:
    address = drawn(tmp_path, "yolo")
    path = tmp_path / "data" / "labels" / "train" / "a.txt"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = b"0 0.1 0.1 0.3 0.1 0.3 0.5 0.1 0.5\n"  # around van (10, 10, 30, 50)
    path.write_bytes(b"".join(lines))
    before = bytes_of(tmp_path / "data")
    run = audit_run(tmp_path / "run", address, [LABEL, BOX], polygons="box")
    boxmend.apply(run, tmp_path / "label", ApplySettings(precision=1.0))
    made = (tmp_path / "label" / "labels" / "train" / "a.txt").read_bytes()
    assert made.splitlines(keepends=True) == [lines[0].replace(b"0 ", b"1 ", 1), *lines[1:]]
    boxmend.apply(run, tmp_path / "box", ApplySettings(precision=0.9))
    made = (tmp_path / "box" / "labels" / "train" / "a.txt").read_bytes()
    assert made.splitlines(keepends=True) == [b"1 0.21 0.3 0.18 0.4\n", *lines[1:]]
    boxmend.revert(tmp_path / "box")
    assert bytes_of(tmp_path / "box") == before


def test_images_that_an_audit_found_elsewhere_are_found_again(tmp_path: Path) -> None:
    drawn(tmp_path, "coco")
    (tmp_path / "alone").mkdir()
    address = tmp_path / "alone" / "instances_train.json"
    (tmp_path / "data" / "instances_train.json").rename(address)
    images = str(tmp_path / "pictures")
    run = audit_run(tmp_path / "run", str(address), [LABEL], images=images)
    result = boxmend.apply(run, tmp_path / "out", ApplySettings(precision=1.0))
    assert result.saved.images_missing == 0
    other = audit_run(tmp_path / "other", str(address), [LABEL])
    result = boxmend.apply(other, tmp_path / "bare", ApplySettings(precision=1.0))
    assert result.saved.images_missing == 2


def test_a_box_without_area_that_only_gets_a_label_is_no_hindrance(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco", [(10, 10, 10, 50), (40, 20, 60, 40)])
    run = audit_run(tmp_path / "run", address, [LABEL])
    boxmend.apply(run, tmp_path / "out", ApplySettings(precision=1.0))
    made = objects(boxmend.load(tmp_path / "out"))
    assert made[0] == ("a.png", "truck", [10, 10, 10, 50])


def test_an_edited_dataset_is_noticed(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = audit_run(tmp_path / "run", address, ALL)
    path = Path(address) / "instances_train.json"
    path.write_text(path.read_text().replace('"id": 10', '"id": 77'))
    ensure_refused(run, "not the data that .* was made of .*audit again")


def test_a_table_of_other_annotations_is_noticed(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL)
    dataset = boxmend.load(drawn(tmp_path / "other", "coco"))
    write_fixes(run / FIXES_FILE, dataset, table_of(dataset, ALL), "0" * 64)
    ensure_refused(run, "fixes.parquet: belongs to other annotations; audit again")


def test_an_audit_without_its_table_says_so(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL)
    os.remove(run / FIXES_FILE)
    with pytest.raises(UsageError, match="no such table"):
        boxmend.apply(run, tmp_path / "out")


def test_an_unfinished_audit_says_so(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL)
    os.remove(run / "finished")
    ensure_refused(run, "the audit is unfinished; .* audit again")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict("l", "accept", label="lorry"), "gives fix l the label 'lorry'"),
        (Verdict("b", "accept", box=(120, 10, 130, 20)), "box of fix b lies outside its image"),
    ],
)
def test_verdicts_that_do_not_fit_the_dataset_are_reported(
    tmp_path: Path, verdict: Verdict, words: str
) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL, [verdict])
    ensure_refused(run, words)


def test_damaged_verdicts_are_reported(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "run", drawn(tmp_path, "coco"), ALL, [Verdict("l", "accept")])
    with (run / "verdicts.jsonl").open("a") as file:
        file.write("yes\n")
    append_verdicts(run, [Verdict("l", "reject")])
    ensure_refused(run, "verdicts.jsonl: line 2 is not a verdict")
