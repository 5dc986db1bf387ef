"""One opinion from all parts: what each part is given, and what follows from it."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from boxmend.auditing import boxes as box_model
from boxmend.auditing import judging
from boxmend.auditing.boxes import BoxModel, BoxOpinion
from boxmend.auditing.calibration import Share
from boxmend.auditing.duplicates import Repeats
from boxmend.auditing.evidence import Evidence, Objects, gather_evidence
from boxmend.auditing.gross_boxes import GROSS_BOXES
from boxmend.auditing.judging import AuditInputs, AuditOpinion, judge_annotations
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.missing import UnexplainedDetections
from boxmend.auditing.presence import Presence
from tests.auditing.audit_scenes import LABELS, Noise, scene

NOISY = Noise(labels=0.2, boxes=0.2, missing=0.05, spurious=0.1, duplicates=0.05)


@cache
def make_inputs() -> tuple[AuditInputs, Evidence]:
    one = scene(NOISY, images=150)
    objects = Objects(one.dataset.image_rows, one.dataset.labels, one.dataset.boxes, len(LABELS))
    none = np.zeros(0, np.int64)
    ignored = Objects(none, none, np.zeros((0, 4)), len(LABELS))
    sizes = np.full((150, 2), 400.0)
    return AuditInputs(objects, ignored, sizes, one.detected), gather_evidence(
        objects, objects, one.detected
    )


def opinion_and_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[AuditOpinion, dict[str, tuple[Any, ...]]]:
    """An opinion, and what the parts were called with."""
    calls: dict[str, tuple[Any, ...]] = {}

    def record(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] = arguments
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    for name in ("judge_labels", "find_repeats", "find_missing"):
        record(judging, name)
    record(box_model, "fit_box_model")
    return judge_annotations(*make_inputs(), np.random.default_rng(0)), calls


def test_every_part_is_given_what_the_others_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opinion, calls = opinion_and_arguments(monkeypatch)
    p_real = 1 - opinion.presence.p_spurious
    assert p_real.min() < 0.5
    assert calls["judge_labels"][2].tolist() == p_real.tolist()
    assert calls["find_missing"][1].tolist() == p_real.tolist()
    assert opinion.labels.p_wrong.max() > 0.5
    assert calls["find_missing"][2].tolist() == (1 - opinion.labels.p_wrong).tolist()
    assert opinion.box_model.noise > 0.1
    assert calls["find_repeats"][2] == opinion.box_model.noise
    assert calls["fit_box_model"][4] > 0  # what was chosen by its overlap follows the annotated box


def test_an_annotation_is_there_if_it_is_neither_spurious_nor_a_duplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opinion, _ = opinion_and_arguments(monkeypatch)
    p_duplicate = np.zeros(len(opinion.p_there))
    p_duplicate[opinion.repeats.rows] = opinion.repeats.p_duplicate
    assert p_duplicate.max() > 0.5
    assert opinion.p_there == pytest.approx((1 - opinion.presence.p_spurious) * (1 - p_duplicate))


def test_boxes_that_were_not_seen_are_as_probably_bad_as_others_and_stay() -> None:
    one, evidence = make_inputs()
    is_unseen = np.isnan(evidence.boxes).any(axis=1)
    assert is_unseen.any()
    without = AuditInputs(one.objects, one.ignored, one.sizes, None)  # no gross boxes
    result = judge_annotations(without, evidence, np.random.default_rng(0)).boxes
    mean = result.p_bad[~is_unseen].mean()
    assert mean > 0.3
    assert result.p_bad[is_unseen] == pytest.approx(np.full(is_unseen.sum(), mean))
    assert (result.boxes[is_unseen] == one.objects.boxes[is_unseen]).all()
    assert result.p_fix[is_unseen].max() == 0


def test_the_pull_of_a_training_run_is_the_one_that_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, evidence = make_inputs()
    pulls = []
    original = box_model.fit_box_model

    def fit_box_model(*arguments: Any) -> Any:
        pulls.append(arguments[4])
        return original(*arguments)

    monkeypatch.setattr(box_model, "fit_box_model", fit_box_model)
    of_run = Evidence(**{**vars(evidence), "pull": 0.25})
    judge_annotations(
        AuditInputs(one.objects, one.ignored, one.sizes, None), of_run, np.random.default_rng(0)
    )
    assert pulls == [0.25]


def test_the_share_of_bad_boxes_has_the_bounds_of_their_count_and_of_the_noise() -> None:
    none, ones = np.zeros(0), np.ones(5)
    rows = none.astype(np.int64)
    model = BoxModel(0.2, 0.1, 0.3, 0.0, ones[:4], 0.03 * ones, ones, 0 * ones)
    p_bad = np.full(100, 0.9)
    unknown = Share(0.0, 0.0, 1.0)
    opinion = AuditOpinion(
        labels=LabelOpinion(none, rows, none, unknown),
        boxes=BoxOpinion(p_bad, np.zeros((100, 4)), p_bad, p_bad),
        box_model=model,
        presence=Presence(none, unknown),
        repeats=Repeats(rows, rows, none, unknown),
        missing=UnexplainedDetections(rows, none, none, unknown),
        p_there=none,
    )
    result = opinion.estimate_bad_boxes()
    spoilt = [box_model.compute_bad_share(noise) for noise in (0.1, 0.2, 0.3)]
    assert spoilt[0] < 0.1 < 0.5 < spoilt[1] < spoilt[2]
    assert result.value == pytest.approx(0.9)
    assert result.low == pytest.approx(0.9 + spoilt[0] - spoilt[1] - GROSS_BOXES.min_rate)
    # 1.96 sqrt(100 * 0.9 * 0.1) / 100 = 0.0588 above, or by the noise, if that is more
    assert result.high == pytest.approx(min(max(0.9588, 0.9 + spoilt[2] - spoilt[1]), 1))
