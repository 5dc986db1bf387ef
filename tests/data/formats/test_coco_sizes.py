"""Sizes, areas and category ids of COCO documents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boxmend
from boxmend.data.formats.coco.document import ENTRIES_PER_CHUNK
from boxmend.data.formats.coco.sizes import (
    find_ambiguous_category_ids,
    get_category_ids,
    measure_annotations,
)
from tests.training.evaluation.scored_files import two_images


def entries(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    base = {"image_id": 9, "category_id": 5, "bbox": [0.1, 0.1, 0.2, 10]}
    return [{"id": k, **base, **change} for k, change in enumerate(changes)]


def test_the_area_of_the_document_counts_if_it_is_valid(tmp_path: Path) -> None:
    area_values: list[Any] = [7, 0, 2.5, None, -1, "9", 1e999, [3]]
    annotations = entries({}, *({"area": value} for value in area_values))
    areas, sizes = measure_annotations(boxmend.load(two_images(tmp_path, annotations=annotations)))
    assert areas.tolist() == [2.0, 7.0, 0.0, 2.5, 2.0, *[pytest.approx(2.0)] * 4]
    assert sizes[:5].tolist() == [[0.2, 10.0]] * 5  # to the last bit


def test_a_changed_box_has_its_own_size(tmp_path: Path) -> None:
    dataset = boxmend.load(two_images(tmp_path, annotations=entries({"area": 7}, {"area": 8})))
    dataset.boxes[1] = [0, 0, 3, 4]
    dataset = dataset.add(np.array([0]), np.array([0]), np.array([[0.0, 0, 5, 6]]))
    areas, sizes = measure_annotations(dataset)
    assert areas.tolist() == [7, 12, 30]
    assert sizes.tolist() == [[0.2, 10.0], [3, 4], [5, 6]]


def test_a_new_annotation_is_not_the_last_of_the_document(tmp_path: Path) -> None:
    annotations = entries({"bbox": [1, 1, 3, 4], "area": 7})
    dataset = boxmend.load(two_images(tmp_path, annotations=annotations))
    dataset = dataset.add(np.array([0]), np.array([0]), dataset.boxes)
    assert measure_annotations(dataset)[0].tolist() == [7, 12]


def test_many_entries_are_read_in_order(tmp_path: Path) -> None:
    n = 2 * ENTRIES_PER_CHUNK + 1
    odd = {"area": "none"}
    changes = [{"area": k} if k != ENTRIES_PER_CHUNK + 1 else odd for k in range(n)]
    areas, _ = measure_annotations(
        boxmend.load(two_images(tmp_path, annotations=entries(*changes)))
    )
    expected = np.arange(n, dtype=np.float64)
    expected[ENTRIES_PER_CHUNK + 1] = 2.0
    np.testing.assert_allclose(areas, expected)


def test_numbers_that_two_documents_use_differently_are_ambiguous(tmp_path: Path) -> None:
    one = two_images(tmp_path / "one")  # cat is 5, dog is 2
    other = two_images(
        tmp_path / "other",
        annotations=[],
        categories=[{"id": 5, "name": "dog"}, {"id": 2, "name": "dog"}, {"id": 8, "name": "cat"}],
    )
    dataset = boxmend.load(one, other)
    assert find_ambiguous_category_ids(dataset) == {5, 2}  # the second dog has another name
    assert get_category_ids(dataset)[:2] == (5, 2)
    assert find_ambiguous_category_ids(boxmend.load(one)) == set()


def test_a_number_in_use_is_not_used_for_another_class(tmp_path: Path) -> None:
    one = two_images(tmp_path / "one")  # cat is 5, dog is 2
    owls = [{"id": 5, "name": "owl"}, {"id": 9, "name": "fox"}]
    other = two_images(tmp_path / "other", annotations=[], categories=owls)
    dataset = boxmend.load(one, other)
    numbers = dict(zip(dataset.label_names, get_category_ids(dataset), strict=True))
    assert numbers == {"cat": 5, "dog": 2, "fox": 9, "owl": 10}
