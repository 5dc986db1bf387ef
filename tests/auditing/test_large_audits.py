"""What makes audits of large datasets fast changes nothing but the time."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.auditing import boxes, probing, provenance
from boxmend.auditing.audit import AuditSettings, audit, audit_without_probe
from boxmend.auditing.evidence import Detected
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.ordering import sort_by_confidence
from boxmend.auditing.pairs import find_largest
from tests.auditing.audit_scenes import Noise, scene

ALL = Noise(labels=0.2, boxes=0.2, missing=0.05, spurious=0.05, duplicates=0.02)


def test_detections_come_by_image_and_score_and_equals_by_label_and_box() -> None:
    images, labels = np.array([1, 0, 0, 0]), np.array([0, 2, 1, 1])
    scores = np.array([0.9, 0.5, 0.5, 0.5])
    places = np.array([[0.0, 0, 1, 1], [0, 0, 1, 1], [5, 0, 6, 1], [4, 0, 5, 1]])
    # in image 0 all scores are the same: label 1 first, and of its two boxes the left one
    assert sort_by_confidence(images, scores, labels, places).tolist() == [3, 2, 1, 0]


@settings(deadline=None)
@given(seed=st.integers(0, 999), number=st.integers(0, 30), kinds=st.integers(1, 4))
def test_sorting_equals_by_themselves_is_sorting_all(seed: int, number: int, kinds: int) -> None:
    random = np.random.default_rng(seed)
    images, labels = random.integers(kinds, size=(2, number))
    scores = random.integers(kinds, size=number) / kinds
    places = random.integers(3, size=(number, 4)).astype(np.float64)
    order = sort_by_confidence(images, scores, labels, places)
    keys = [
        (int(images[k]), -float(scores[k]), int(labels[k]), *places[k, ::-1].tolist())
        for k in order.tolist()
    ]
    assert keys == sorted(keys)
    assert sorted(order.tolist()) == list(range(number))


@settings(deadline=None)
@given(seed=st.integers(0, 999), number=st.integers(0, 30))
def test_the_largest_of_each_key_is_that_of_a_plain_loop(seed: int, number: int) -> None:
    random = np.random.default_rng(seed)
    keys, values = random.integers(6, size=number), random.integers(-3, 3, size=number) / 2
    largest, places = find_largest(keys, values, 7)
    for key in range(7):
        own = [k for k in range(number) if keys[k] == key]
        best = max(own, key=lambda k: (values[k], -k), default=-1)
        assert places[key] == best
        assert largest[key] == (values[best] if own else 0.0)


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scene(ALL, images=60)
    small = replace(boxes.BOXES, boxes_per_chunk=50)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(boxes, "BOXES", replace(small, max_threads=threads))
        found.append(audit_without_probe(one.dataset, one.detected))
    first, second = found
    assert first.p_wrong[Kind.BAD_BOX].tolist() == second.p_wrong[Kind.BAD_BOX].tolist()
    assert np.array_equal(first.fixes.new_boxes, second.fixes.new_boxes, equal_nan=True)


def test_of_a_large_dataset_some_images_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scene(Noise(), images=20)  # with 4 annotations each
    random = np.random.default_rng(0)
    assert probing.select_images(one.dataset, random) is None
    monkeypatch.setattr(probing, "PROBE", replace(probing.PROBE, max_annotations=13))
    images = probing.select_images(one.dataset, random)
    assert images is not None
    assert len(np.unique(images)) == 3
    assert images.tolist() == sorted(images.tolist())
    monkeypatch.setattr(probing, "PROBE", replace(probing.PROBE, max_annotations=3))
    images = probing.select_images(one.dataset, random)
    assert images is not None
    assert len(images) == 1  # one is looked at, however many annotations it has


def test_a_probe_of_some_images_finds_what_it_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    one, settings = scene(ALL, images=300), AuditSettings(probe=0.1)
    monkeypatch.setattr(probing, "PROBE", replace(probing.PROBE, max_rounds=1))
    whole = audit(one.dataset, one.detected, settings)
    monkeypatch.setattr(probing, "PROBE", replace(probing.PROBE, max_annotations=800))
    part, again = (audit(one.dataset, one.detected, settings) for _ in range(2))
    assert part.fixes.ids == whole.fixes.ids
    assert part.probe is not None
    assert whole.probe is not None
    assert part.probe == again.probe
    for kind, causes in part.probe.items():
        for cause, counts in causes.items():
            assert 0 < counts.planted < whole.probe[kind][cause].planted
            if kind in (Kind.WRONG_LABEL, Kind.DUPLICATE):
                assert counts.found > 0.5 * counts.planted, cause


def test_some_images_tell_whether_predictions_repeat_the_annotations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = scene(Noise(labels=0.2), images=200)
    dataset = one.dataset
    scores = np.full(len(dataset), 0.9)
    repeated = Detected(dataset.image_rows, dataset.labels, scores, dataset.boxes)
    for enough in (50_000, 100):
        few = replace(provenance.PROVENANCE, max_annotations=enough)
        monkeypatch.setattr(provenance, "PROVENANCE", few)
        assert provenance.is_too_good(dataset, cast(Any, repeated))
        assert not provenance.is_too_good(dataset, cast(Any, one.detected))
