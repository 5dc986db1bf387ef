"""The equations of co-teaching, by numbers worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.detector import RoiOutput, RoiSample
from boxmend.errors import UsageError
from boxmend.methods.peers.co_teaching import (
    ObjectLosses,
    forget_rate,
    forget_share,
    is_dropped,
    mark_own_rois,
    masked_median,
    object_losses,
    relative_losses,
    remove_dropped,
)
from boxmend.methods.table import Rates
from boxmend.runs.settings import CoTeachingSettings

INF = math.inf
LN2 = math.log(2)


@pytest.mark.parametrize(
    ("setting", "rates", "tau"),
    [
        (0.3, Rates(0.4, 0.4), 0.3),
        (0.0, Rates(0.4, 0.4), 0.0),
        (None, Rates(0.4, 0.4), 0.4),
        (None, Rates(0.6, None), 0.6),
        (None, Rates(0.0, 0.4), 0.2),  # boxes alone are noisy
        (None, Rates(0.0, None), 0.2),
        (None, Rates(None, 0.0), 0.2),
        (None, Rates(None, None), 0.2),
        (None, Rates(0.0, 0.0), 0.0),
    ],
)
def test_tau_is_the_setting_or_the_label_noise_or_a_fifth(
    setting: float | None, rates: Rates, tau: float
) -> None:
    assert forget_rate(setting, rates) == tau


def test_the_share_rises_over_a_third_of_the_epochs_and_stays() -> None:
    # T_k = 12 / 3 = 4, so 0.4 * t / 4 until epoch 4
    shares = [forget_share(epoch, 12, 0.4, CoTeachingSettings()) for epoch in range(12)]
    assert shares == pytest.approx([0, 0.1, 0.2, 0.3] + [0.4] * 8)


@pytest.mark.parametrize(
    ("epoch", "changes", "share"),
    [
        (2, {"exponent": 2.0}, 0.1),  # 0.4 * (2 / 4)^2
        (1, {"exponent": 0.5}, 0.2),  # 0.4 * (1 / 4)^0.5
        (4, {"exponent": 2.0}, 0.4),
        (0, {"ramp_share": 0.0}, 0.4),  # at once
        (9, {"ramp_share": 1.0}, 0.3),  # 0.4 * 9 / 12
        (0, {"ramp_share": 1.0}, 0.0),
    ],
)
def test_exponent_and_ramp_shape_the_rise(
    epoch: int, changes: dict[str, float], share: float
) -> None:
    assert forget_share(epoch, 12, 0.4, CoTeachingSettings(**changes)) == pytest.approx(share)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("forget_rate", 1.1),
        ("forget_rate", -0.1),
        ("ramp_share", math.nan),
        ("exponent", 0.0),
        ("queue_length", 0),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"co_teaching\.{name} is "):
        CoTeachingSettings(**{name: value})


def rois(matched: list[int], is_positive: list[bool], labels: list[int]) -> RoiSample:
    """RoIs of one image; the wanted deltas are zero."""
    count = len(matched)
    return RoiSample(
        boxes=torch.zeros(1, count, 4),
        matched=torch.tensor([matched]),
        is_sampled=torch.ones(1, count, dtype=torch.bool),
        is_positive=torch.tensor([is_positive]),
        labels=torch.tensor([labels]),
        deltas=torch.zeros(1, count, 4),
    )


# Annotation 0 has label 0 and two RoIs, 1 has label 1 and one, 2 has none; the last RoI is
# background, whatever row it is matched with.
SAMPLE = rois([0, 1, 0, 0], [True, True, True, False], [0, 1, 0, 0])


def outputs(deltas: list[list[float]]) -> RoiOutput:
    """Probabilities of background and two classes, and the deltas of each RoI's own class."""
    chances = torch.tensor([[[0.5, 0.25, 0.25], [0.5, 0.375, 0.125], [0.25, 0.5, 0.25], [0, 0, 1]]])
    columns = [1, 2, 1, 0]
    every = torch.full((1, 4, 3, 4), 77.0)  # those of other classes are not to be looked at
    for row, (column, values) in enumerate(zip(columns, deltas, strict=True)):
        every[0, row, column] = torch.tensor(values)
    return RoiOutput(chances.clamp(min=1e-9).log(), every)


def test_an_annotation_has_the_mean_losses_of_its_positive_rois() -> None:
    losses = object_losses(
        outputs([[1, -2, 0, 0], [0.5, 0.5, -0.5, 0.5], [0, 0, 0, 1], [9, 9, 9, 9]]),
        SAMPLE,
        mark_own_rois(SAMPLE, 3),
        "l1",
    )
    # -log(1/4) and -log(1/2) for annotation 0, -log(1/8) for 1
    assert losses.classes.tolist() == [pytest.approx([1.5 * LN2, 3 * LN2, 0])]
    # (3 + 1) / 2, and 4 * 0.5
    assert losses.boxes.tolist() == [pytest.approx([2, 2, 0])]
    assert losses.is_measured.tolist() == [[True, True, False]]


def test_the_box_loss_is_the_detectors_own() -> None:
    losses = object_losses(
        outputs([[1, -2, 0, 0], [1 / 18, 0, 0, 0], [0, 0, 0, 1], [9, 9, 9, 9]]),
        SAMPLE,
        mark_own_rois(SAMPLE, 3),
        "smooth_l1",
    )
    # |d| - 1/18 above beta = 1/9: (3 - 2/18 + 1 - 1/18) / 2; below, d^2 / (2/9) = 9/2 / 324
    assert losses.boxes.tolist() == [pytest.approx([(4 - 3 / 18) / 2, 1 / 72, 0])]


def test_no_annotations_have_no_losses() -> None:
    losses = object_losses(outputs([[0.0] * 4] * 4), SAMPLE, mark_own_rois(SAMPLE, 0), "l1")
    assert [part.shape for part in losses] == [(1, 0)] * 3


@pytest.mark.parametrize(
    ("values", "marks", "median"),
    [
        ([4, 1, 100, 9, 2], [1, 1, 0, 1, 1], 3),  # (2 + 4) / 2
        ([4, 1, 100, 9, 2], [1, 1, 0, 0, 1], 2),
        ([4, 1, 100, 9, 2], [1, 0, 0, 0, 0], 4),
        ([4, 1, 100, 9, 2], [0, 0, 0, 0, 0], 1),
        ([], [], 1),
    ],
)
def test_the_median_covers_the_marked_values(
    values: list[float], marks: list[int], median: float
) -> None:
    actual = masked_median(torch.tensor(values, dtype=torch.float32), torch.tensor(marks).bool())
    assert actual.item() == median


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1000, width=32), st.booleans()), min_size=1, max_size=12))
def test_the_median_is_numpys(rows: list[tuple[float, bool]]) -> None:
    values, marks = zip(*rows, strict=True)
    median = masked_median(torch.tensor([values]), torch.tensor([marks]))
    chosen = [value for value, mark in rows if mark]
    assert median.item() == pytest.approx(np.median(chosen) if chosen else 1, rel=1e-6)


def losses_of(classes: list[float], boxes: list[float], marks: list[int]) -> ObjectLosses:
    return ObjectLosses(
        torch.tensor([classes]), torch.tensor([boxes]), torch.tensor([marks], dtype=torch.bool)
    )


BATCH = losses_of([1.0, 3.0, 2.0, 50.0], [0.5, 0.1, 0.25, 50.0], [1, 1, 1, 0])


def test_both_losses_count_in_medians_of_the_batch() -> None:
    # medians 2 and 0.25: 1/2 + 2, 3/2 + 0.4, 1 + 1
    assert relative_losses(BATCH, BATCH)[0, :3].tolist() == pytest.approx([2.5, 1.9, 2.0])


def test_the_batch_may_be_more_than_this_part_of_it() -> None:
    part = losses_of([4.0], [1.0], [1])
    assert relative_losses(part, BATCH).tolist() == [pytest.approx([4 / 2 + 1 / 0.25])]


def test_medians_of_zero_or_of_no_values_give_finite_losses() -> None:
    still = losses_of([1.0, 1.0], [0.0, 0.0], [1, 1])
    assert relative_losses(still, still).tolist() == [[1.0, 1.0]]
    assert relative_losses(still, losses_of([5.0], [5.0], [0])).tolist() == [[1.0, 1.0]]


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_neither_loss_dominates_by_its_unit(one: float, other: float) -> None:
    scaled = BATCH._replace(classes=BATCH.classes * one, boxes=BATCH.boxes * other)
    torch.testing.assert_close(relative_losses(scaled, scaled), relative_losses(BATCH, BATCH))


def test_annotations_above_the_limit_are_dropped() -> None:
    every = torch.ones(1, 4, dtype=torch.bool)
    is_box = torch.tensor([[True, True, True, False]])
    losses = torch.tensor([[1.9, 2.0, 2.1, 9.0]])
    result = is_dropped(losses, torch.tensor(2.0), is_box, every, every)
    assert result.tolist() == [[False, False, True, False]]


@pytest.mark.parametrize(("limit", "is_out"), [(2.0, True), (INF, False)])
def test_annotations_that_neither_network_measured_have_an_infinite_loss(
    limit: float, is_out: bool
) -> None:
    """And what only the peer measured is kept."""
    is_box, no_box = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool)
    by_peer = torch.tensor([[False, True]])
    result = is_dropped(torch.full((1, 2), 9.0), torch.tensor(limit), is_box, no_box, by_peer)
    assert result.tolist() == [[is_out, False]]


def test_rois_of_dropped_annotations_are_neither_positive_nor_negative() -> None:
    left = remove_dropped(SAMPLE, mark_own_rois(SAMPLE, 3), torch.tensor([[True, False, False]]))
    assert left.is_sampled.tolist() == [[False, True, False, True]]  # background stays
    assert left.is_positive.tolist() == [[False, True, False, False]]
    assert torch.equal(left.boxes, SAMPLE.boxes)


def test_without_dropped_annotations_the_sample_is_unchanged() -> None:
    for number in (0, 3):
        none = torch.zeros(1, number, dtype=torch.bool)
        left = remove_dropped(SAMPLE, mark_own_rois(SAMPLE, number), none)
        assert torch.equal(left.is_sampled, SAMPLE.is_sampled)
        assert torch.equal(left.is_positive, SAMPLE.is_positive)
