"""Patched COCO files differ only in the changed values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.data.formats import load
from boxmend.errors import DataError, UsageError
from tests.data.formats.coco_documents import entry_texts, read_bytes, save_to_bytes


def wrap_annotation(
    annotation: str, categories: str = '{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}'
) -> bytes:
    """Return a document with one annotation, and a function that returns its text."""
    head = '{"images": [{"id": 1, "file_name": "1.jpg", "width": 64, "height": 48}], '
    text = f'{head}"annotations": [{annotation}], "categories": [{categories}]}}'
    return text.encode()


def annotation_of(data: bytes) -> str:
    entries, _ = entry_texts(data, "annotations")
    return entries[0]


def test_moved_box_changes_only_the_numbers_that_differ() -> None:
    dataset = read_bytes(
        wrap_annotation(
            '{"id":7,"image_id":1,"category_id":2,"bbox":[1.0, 2e1,30.50 ,4],"area":122,"x":-0}'
        )
    )
    assert dataset.boxes.tolist() == [[1, 20, 31.5, 24]]
    dataset.boxes[0, 2] = 32.5
    assert annotation_of(save_to_bytes(dataset)) == (
        '{"id":7,"image_id":1,"category_id":2,"bbox":[1.0, 2e1,31.5 ,4],"area":126,"x":-0}'
    )


def test_changed_label_changes_only_the_category_id() -> None:
    entry = '{ "bbox": [1.0,2,3,4], "category_id" : 1, "image_id": 1, "id": 5 }'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.labels[0] = 1
    assert annotation_of(save_to_bytes(dataset)) == entry.replace(
        '"category_id" : 1', '"category_id" : 2'
    )


def test_category_ids_that_are_texts_with_spaces_are_replaced_whole() -> None:
    categories = '{"id": "traffic light", "name": "light"}, {"id": "no, way", "name": "way"}'
    entry = '{"id": 1, "image_id": 1, "category_id": "traffic light", "bbox": [1, 2, 3, 4]}'
    dataset = read_bytes(wrap_annotation(entry, categories))
    dataset.labels[0] = 1
    changed = save_to_bytes(dataset)
    assert annotation_of(changed) == entry.replace("traffic light", "no, way")
    assert read_bytes(changed).labels.tolist() == [1]


@pytest.mark.parametrize("area", ['"12 34"', '"a, b"', "[1, 2]", '{"m": 1}', "null", "NaN"])
def test_area_that_is_not_a_number_is_replaced_whole(area: str) -> None:
    entry = f'{{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "area": {area}}}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.boxes[0] = [1, 2, 6, 8]
    assert annotation_of(save_to_bytes(dataset)) == (
        '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 5, 6], "area": 30}'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '"about": {"area": 5}, "bbox": [1, 2, 3, 4]',
            '"about": {"area": 5}, "bbox": [1, 2, 5, 6]',
        ),
        (
            '"bbox": [1, 2, 3, 4], "area": 1, "area": 2',
            '"bbox": [1, 2, 5, 6], "area": 1, "area": 30',
        ),
        (
            '"bbox" : [1, 2, 3, 4], "area" : 1, "area" : 2',
            '"bbox" : [1, 2, 5, 6], "area" : 1, "area" : 30',
        ),
        ('"area": 1, "bbox": [0, 0, 1, 1], "bbox": [1, 2, 3, 4]', None),
        (
            '"b\\u0062ox": [1, 2, 3, 4], "note": "bbox"',
            '"b\\u0062ox": [1, 2, 5, 6], "note": "bbox"',
        ),
        ('"note": "area", "bbox": [1, 2, 3, 4]', '"note": "area", "bbox": [1, 2, 5, 6]'),
        ('"bbox":[1,2,3,4],"area":1', '"bbox":[1,2,5,6],"area":30'),
    ],
)
def test_keys_are_not_confused_with_text_that_looks_like_them(
    before: str, after: str | None
) -> None:
    entry = f'{{"id": 1, "image_id": 1, "category_id": 1, {before}}}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.boxes[0, 2:] += 2
    if after is None:
        after = '"area": 30, "bbox": [0, 0, 1, 1], "bbox": [1, 2, 5, 6]'
    assert annotation_of(save_to_bytes(dataset)) == entry.replace(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"category_id": 2, "category_id": 1', '"category_id": 2, "category_id": 2'),
        ('"category_id": 1, "x": {"category_id": 1}', '"category_id": 2, "x": {"category_id": 1}'),
        ('"note": "category_id", "category_id":1', '"note": "category_id", "category_id":2'),
    ],
)
def test_category_id_is_not_confused_with_text_that_looks_like_it(before: str, after: str) -> None:
    entry = f'{{"id": 1, "image_id": 1, "bbox": [1, 2, 3, 4], {before}}}'
    dataset = read_bytes(wrap_annotation(entry))
    assert dataset.labels.tolist() == [0]
    dataset.labels[0] = 1
    assert annotation_of(save_to_bytes(dataset)) == entry.replace(before, after)


def test_new_label_becomes_a_category_beyond_the_largest_id() -> None:
    entry = '{"id": 1, "image_id": 1, "category_id": 9, "bbox": [1, 2, 3, 4]}'
    dataset = read_bytes(wrap_annotation(entry, '{"id": 9, "name": "cat"}'))
    dataset.label_names = ("cat", "unused", "cow")
    assert save_to_bytes(dataset) == wrap_annotation(entry, '{"id": 9, "name": "cat"}')
    dataset.labels[0] = 2
    changed = save_to_bytes(dataset)
    new = '{"id": 9, "name": "cat"}, {"id": 11, "name": "cow"}'
    assert changed == wrap_annotation(entry.replace(": 9", ": 11"), new)


OUTLINED = (
    '{"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[1, 2, 3, 4, 5, 6.0]], '
    '"area": 7.50, "bbox": [1, 2, 3, 4], "iscrowd": 0}'
)


def test_outline_of_a_moved_box_is_kept_and_flagged_and_its_area_stays() -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    dataset.boxes[0, 0] = 2
    changed = OUTLINED.replace("[1, 2, 3, 4], ", "[2, 2, 2, 4], ")
    assert annotation_of(save_to_bytes(dataset)) == (
        changed[:-1] + ', "boxmend": {"stale": ["segmentation"]}}'
    )


def test_outline_of_a_moved_box_is_dropped_by_choice_and_area_follows_the_box() -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    dataset.boxes[0, 0] = 2
    assert annotation_of(save_to_bytes(dataset, "drop")) == (
        '{"id": 1, "image_id": 1, "category_id": 1, "segmentation": [], '
        '"area": 8, "bbox": [2, 2, 2, 4], "iscrowd": 0}'
    )


def test_outline_of_a_relabelled_annotation_stays_unflagged() -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    dataset.labels[0] = 1
    changed = OUTLINED.replace('"category_id": 1', '"category_id": 2')
    assert annotation_of(save_to_bytes(dataset)) == changed


@pytest.mark.parametrize(
    ("before", "flagged", "dropped"),
    [
        ('{"by": "me"}', '{"by": "me", "stale": ["segmentation"]}', '{"by": "me"}'),
        ('{"stale": ["area"], "a": 1.0}', '{"stale": ["area","segmentation"], "a": 1.0}', None),
        ('{"a":1,"stale":["segmentation"]}', None, '{"a":1,"stale":[]}'),
        ('{"stale": 5, "a": NaN}', '{"stale": ["segmentation"], "a": NaN}', None),
        ('"mine"', '{"stale": ["segmentation"]}', None),
    ],
)
def test_flag_is_merged_into_the_value_of_the_key_boxmend(
    before: str, flagged: Any, dropped: Any
) -> None:
    entry = OUTLINED[:-1] + f', "boxmend": {before}}}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.boxes[0, 0] = 2
    for choice, expected in (("flag", flagged), ("drop", dropped)):
        changed = annotation_of(save_to_bytes(dataset, choice))
        assert changed.endswith(f'"boxmend": {expected or before}}}'), choice
        assert changed.count('"boxmend"') == 1


def test_crowd_flag_is_set_in_place_or_appended() -> None:
    entry = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.is_crowd[0] = True
    crowd = save_to_bytes(dataset)
    assert annotation_of(crowd) == entry[:-1] + ', "iscrowd": 1}'
    again = read_bytes(crowd)
    again.is_crowd[0] = False
    assert annotation_of(save_to_bytes(again)) == entry[:-1] + ', "iscrowd": 0}'


@pytest.mark.parametrize(
    ("before", "is_difficult", "after"),
    [
        ("", False, ', "difficult": 1'),
        (', "difficult":0', False, ', "difficult":1'),
        (', "difficult": 1, "x": 2', True, ', "difficult": 0, "x": 2'),
        (', "difficult" : true', True, ', "difficult" : 0'),
        (', "difficult": null', False, ', "difficult": 1'),
        (', "d\\u0069fficult": 1', True, ', "d\\u0069fficult": 0'),
        (', "difficult": 1, "difficult": 0', False, ', "difficult": 1, "difficult": 1'),
    ],
)
def test_difficult_flag_is_set_in_place_or_appended(
    before: str, is_difficult: bool, after: str
) -> None:
    entry = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "iscrowd": 0'
    dataset = read_bytes(wrap_annotation(entry + before + "}"))
    assert dataset.is_difficult.tolist() == [is_difficult]
    assert save_to_bytes(dataset) == wrap_annotation(entry + before + "}")
    dataset.is_difficult[0] = not is_difficult
    changed = save_to_bytes(dataset)
    assert annotation_of(changed) == entry + after + "}"
    assert read_bytes(changed).is_difficult.tolist() == [not is_difficult]


def test_added_annotation_has_its_difficult_flag() -> None:
    dataset = read_bytes(
        wrap_annotation('{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}')
    )
    more = dataset.add(np.array([0, 0]), np.array([0, 1]), np.array([[0, 0, 1, 2], [0, 0, 2, 2]]))
    more.is_difficult[1] = True
    entries = json.loads(save_to_bytes(more))["annotations"]
    assert [entry.get("difficult") for entry in entries] == [None, 1, None]
    assert read_bytes(save_to_bytes(more)).is_difficult.tolist() == [False, True, False]


def test_new_member_follows_the_layout_of_an_indented_entry() -> None:
    entry = '{\r\n\t\t"id": 1,\r\n\t\t"image_id": 1, "category_id": 1, "bbox": [1,2,3,4]\r\n\t}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.is_crowd[0] = True
    assert annotation_of(save_to_bytes(dataset)) == entry.replace(
        "[1,2,3,4]", '[1,2,3,4],\r\n\t\t"iscrowd": 1'
    )


def test_added_annotations_get_unused_ids_and_come_last_in_the_layout_of_the_list() -> None:
    data = wrap_annotation(
        '\n  {"id": 9, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]},'
        '\n  {"id": 3, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}\n'
    )
    dataset = read_bytes(data)
    more = dataset.add(np.array([0]), np.array([1]), np.array([[0.5, 1, 2, 3]]))
    new = (
        '{"id": 10, "image_id": 1, "category_id": 2, "bbox": [0.5, 1, 1.5, 2], "area": 3, '
        '"iscrowd": 0}'
    )
    assert save_to_bytes(more) == data.replace(b"}\n]", b"},\n  " + new.encode() + b"\n]")


def test_annotation_added_to_a_single_one_follows_its_layout() -> None:
    data = wrap_annotation(
        '\n\t\t{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}\n\t'
    )
    dataset = read_bytes(data)
    more = dataset.add(np.array([0]), np.array([0]), np.array([[0.0, 0, 1, 1]]))
    assert b'[1, 2, 3, 4]},\n\t\t{"id": 2, ' in save_to_bytes(more)


def test_entries_are_found_with_any_separators() -> None:
    plain = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}'
    nested = '{"a": {"b": 1}, ' + plain[1:].replace('"id": 1', '"id": 2')
    # were all gaps as long as the first, the last entry would begin at the object inside it
    data = wrap_annotation(plain + " " * 8 + "," + plain.replace("1", "3", 1) + "  ," + nested)
    dataset = read_bytes(data)
    dataset.is_crowd[:] = True
    changed, around = entry_texts(save_to_bytes(dataset), "annotations")
    assert [entry[-15:] for entry in changed] == [', "iscrowd": 1}'] * 3
    assert around == entry_texts(data, "annotations")[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"images": [IMAGE]}', '{"images": [IMAGE], "annotations": [NEW], "categories": [CAT]}'),
        (
            '{\n "annotations": [\n ],\n "images": [IMAGE]\n}',
            '{\n "annotations": [NEW],\n "images": [IMAGE],\n "categories": [CAT]\n}',
        ),
    ],
)
def test_missing_or_empty_lists_are_created_for_new_entries(text: str, expected: str) -> None:
    names = {
        "IMAGE": '{"id": 4, "file_name": "a.jpg", "width": 5, "height": 5}',
        "NEW": '{"id": 1, "image_id": 4, "category_id": 1, "bbox": [0, 0, 1, 2], "area": 2, '
        '"iscrowd": 0}',
        "CAT": '{"id": 1, "name": "cat"}',
    }
    for name, entry in names.items():
        text, expected = text.replace(name, entry), expected.replace(name, entry)
    dataset = read_bytes(text.encode())
    dataset.label_names = ("cat",)
    more = dataset.add(np.array([0]), np.array([0]), np.array([[0.0, 0, 1, 2]]))
    assert save_to_bytes(more).decode() == expected


def test_removing_all_annotations_leaves_an_empty_list() -> None:
    data = wrap_annotation(
        "\n" + OUTLINED + ",\n" + OUTLINED.replace('"id": 1', '"id": 2', 1) + "\n"
    )
    dataset = read_bytes(data)
    emptied = save_to_bytes(dataset.take(np.zeros(2, np.bool_)))
    assert json.loads(emptied)["annotations"] == []
    assert emptied == wrap_annotation("\n\n")


def test_boxes_that_are_not_numbers_survive_and_can_be_removed_or_corrected() -> None:
    bad = '{"id": 2, "image_id": 1, "category_id": 1, "bbox": [NaN, 0, -Infinity, 4], "s": NaN}'
    good = OUTLINED.replace('"id": 1', '"id": 3', 1)
    data = wrap_annotation(f"{OUTLINED},{bad}, {good}").replace(
        b'{"images"', b'{"info": [], "images"'
    )
    dataset = read_bytes(data)
    assert save_to_bytes(dataset) == data
    without = save_to_bytes(dataset.take(dataset.annotation_ids != 2))
    assert without == data.replace(bad.encode() + b", ", b"")
    assert json.loads(without, parse_constant=pytest.fail)
    dataset.boxes[1] = [1, 2, 3, 4]
    dataset.is_crowd[1] = True
    mended = bad.replace("[NaN, 0, -Infinity, 4]", "[1, 2, 2, 2]")[:-1] + ', "iscrowd": 1}'
    assert save_to_bytes(dataset) == data.replace(bad.encode(), mended.encode())


@pytest.mark.parametrize("bbox", ['"bbox": [[1], 2, 3, 4], ', '"bbox": {"x": 1}, ', ""])
def test_boxes_of_another_shape_can_be_corrected(bbox: str) -> None:
    entry = f'{{{bbox}"id": 2, "image_id": 1, "category_id": 1}}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.boxes[0] = [1, 2, 3, 4.5]
    mended = json.loads(annotation_of(save_to_bytes(dataset)))
    assert mended == {"id": 2, "image_id": 1, "category_id": 1, "bbox": [1, 2, 2, 2.5]}


@pytest.mark.parametrize("box", [[1, 2, np.nan, 4], [1, 2, np.inf, 4], [0, 0, 1e200, 1e200]])
def test_box_that_is_made_unwritable_is_refused_with_its_id(box: Any) -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    dataset.boxes[0] = box
    with pytest.raises(DataError, match=r"instances_train.json: annotation 1: its box"):
        save_to_bytes(dataset)
    fresh = read_bytes(wrap_annotation(OUTLINED))
    with pytest.raises(DataError, match="annotation 2: its box"):
        save_to_bytes(fresh.add(np.array([0]), np.array([0]), np.array([box], np.float64)))


def test_annotation_that_is_not_an_object_stays_but_cannot_be_changed() -> None:
    dataset = read_bytes(wrap_annotation('5, "x", ' + OUTLINED))
    assert save_to_bytes(dataset) == wrap_annotation('5, "x", ' + OUTLINED)
    dataset.is_crowd[1] = True
    with pytest.raises(
        DataError, match=r"annotation annotations\[1\] is malformed and cannot be changed"
    ):
        save_to_bytes(dataset)


def test_a_removed_label_is_written_as_null() -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    dataset.labels[0] = -1
    assert json.loads(annotation_of(save_to_bytes(dataset)))["category_id"] is None


def test_added_annotation_without_a_label_is_refused() -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    more = dataset.add(np.array([0]), np.array([-1]), np.ones((1, 4)))
    with pytest.raises(UsageError, match="annotation 2 has no label"):
        save_to_bytes(more)


def test_a_repeated_annotation_is_refused() -> None:
    dataset = read_bytes(wrap_annotation(OUTLINED))
    with pytest.raises(UsageError, match="twice"):
        save_to_bytes(dataset.take(np.array([0, 0])))


def test_annotations_in_another_order_keep_the_order_of_the_document() -> None:
    data = wrap_annotation(OUTLINED + ", " + OUTLINED.replace('"id": 1', '"id": 2', 1))
    dataset = read_bytes(data)
    turned = dataset.take(np.array([1, 0]))
    assert save_to_bytes(turned) == data
    turned.labels[0] = 1
    assert [entry["category_id"] for entry in json.loads(save_to_bytes(turned))["annotations"]] == [
        1,
        2,
    ]
    turned.is_crowd[:] = True
    entries = json.loads(save_to_bytes(turned))["annotations"]
    assert [(entry["category_id"], entry["iscrowd"]) for entry in entries] == [(1, 1), (2, 1)]


def test_differences_below_a_millionth_of_a_pixel_do_not_count() -> None:
    entry = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0.1, 0.1, 1.0000005, 2.0000015]}'
    dataset = read_bytes(wrap_annotation(entry))
    dataset.boxes[0] += 0.3
    assert annotation_of(save_to_bytes(dataset)) == entry.replace("[0.1, 0.1,", "[0.4, 0.4,")


def test_a_moved_huge_box_keeps_the_text_of_its_size() -> None:
    box = "[1000.1, 0.1, 100000000.30, 0.1]"
    dataset = read_bytes(
        wrap_annotation(f'{{"id": 1, "image_id": 1, "category_id": 1, "bbox": {box}}}')
    )
    dataset.boxes[0, [0, 2]] += 0.1
    assert '"bbox": [1000.2, 0.1, 100000000.30, 0.1]' in annotation_of(save_to_bytes(dataset))


def test_box_whose_sides_overflow_stays_as_it_is() -> None:
    entry = '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1e308, 0, 1.0e308, 1]}'
    dataset = read_bytes(wrap_annotation(entry))
    assert save_to_bytes(dataset) == wrap_annotation(entry)
    dataset.labels[0] = 1
    assert annotation_of(save_to_bytes(dataset)) == entry.replace(
        '"category_id": 1', '"category_id": 2'
    )


def test_sources_of_one_folder_are_written_back_under_their_own_names(tmp_path: Path) -> None:
    for name in ("train", "val"):
        text = wrap_annotation(OUTLINED).replace(b"64", b"65" if name == "val" else b"64")
        (tmp_path / f"instances_{name}.json").write_bytes(text)
    dataset = load(tmp_path)
    assert dataset.annotation_ids.tolist() == [1, 11]
    saved = dataset.save(tmp_path / "out", images_as="none")
    assert list(saved.files) == ["instances_train.json", "instances_val.json"]
    for name in saved.files:
        assert (saved.out / name).read_bytes() == (tmp_path / name).read_bytes()


def test_written_ids_of_a_folder_are_those_that_a_reader_gets(tmp_path: Path) -> None:
    for name, ids in (("train", (1, 2)), ("val", (2, 95))):
        entries = ", ".join(OUTLINED.replace('"id": 1', f'"id": {k}', 1) for k in ids)
        (tmp_path / f"instances_{name}.json").write_bytes(wrap_annotation(entries))
    dataset = load(tmp_path)
    assert dataset.annotation_ids.tolist() == [1, 2, 102, 195]
    fewer = dataset.take(np.array([0, 2, 3]))  # now nothing collides any more
    more = dataset.add(np.array([0, 1]), np.array([0, 1]), np.ones((2, 4)) * [[0, 0, 1, 1]])
    for k, changed in enumerate((dataset, fewer, more)):
        saved = changed.save(tmp_path / f"out{k}", images_as="none")
        again = load(saved.out)
        assert sorted(saved.annotation_ids.tolist()) == sorted(again.annotation_ids.tolist())
        rows = {identity: row for row, identity in enumerate(again.annotation_ids.tolist())}
        at = [rows[identity] for identity in saved.annotation_ids.tolist()]
        np.testing.assert_allclose(again.boxes[at], changed.boxes)
        assert again.labels[at].tolist() == changed.labels.tolist()
