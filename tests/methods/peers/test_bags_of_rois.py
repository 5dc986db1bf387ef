"""What OA-MIL and DISCO have in common, by numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings as bounded
from hypothesis import strategies as st
from torch import Tensor

from boxmend.detector import DetectorNumbers, RoiOutput, RoiSample
from boxmend.methods.peers import bags
from boxmend.methods.table import TrainingProgress
from boxmend.runs.ledger import Judgement
from tests.methods.method_batches import NAN, one_image

NUMBERS = DetectorNumbers(roi_samples=8, roi_positive_share=0.5)
BOXES = [[10.0, 10, 30, 30], [12.0, 10, 32, 30], [50.0, 50, 70, 70], [0.0, 0, 9, 9]]


def rois(matched: list[int], is_positive: list[bool], labels: list[int]) -> RoiSample:
    return RoiSample(
        boxes=torch.tensor([BOXES]),
        matched=torch.tensor([matched]),
        is_sampled=torch.ones(1, 4, dtype=torch.bool),
        is_positive=torch.tensor([is_positive]),
        labels=torch.tensor([labels]),
        deltas=torch.full((1, 4, 4), 5.0),
    )


# Annotation 0 of label 1 has the first two RoIs, annotation 2 of label 0 the third, annotation 1
# none; the last RoI is background, whatever row it is matched with.
SAMPLE = rois([0, 0, 2, 0], [True, True, True, False], [1, 1, 0, 0])


def test_a_bag_holds_the_positive_rois_of_its_annotation() -> None:
    result = bags.mark_members(SAMPLE, 3)
    assert result.tolist() == [
        [[True, True, False, False], [False] * 4, [False, False, True, False]]
    ]


@pytest.mark.parametrize(
    ("number", "share", "places"), [(8, 0.5, 4), (8, 0.25, 2), (6, 0.25, 1), (2, 0.25, 1)]
)
def test_only_positions_that_can_be_positive_are_used(
    number: int, share: float, places: int
) -> None:
    numbers = DetectorNumbers(roi_samples=number, roi_positive_share=share)
    cut = bags.select_positives(SAMPLE, numbers)
    assert all(part.shape[1] == places for part in cut)
    output = RoiOutput(torch.zeros(1, 4, 3), torch.zeros(1, 4, 3, 4))
    assert [part.shape[1] for part in bags.select_first(output, cut)] == [places] * 2


def deltas(values: list[list[float]], labels: list[int]) -> RoiOutput:
    every = torch.full((1, 4, 3, 4), 77.0)
    for row, (own, label) in enumerate(zip(values, labels, strict=True)):
        every[0, row, label + 1] = torch.tensor(own)
    return RoiOutput(torch.zeros(1, 4, 3), every)


def test_boxes_are_decoded_for_the_class_of_their_annotation_and_cut_at_the_image() -> None:
    output = deltas(
        [[1, 0, 0, 0], [-12, 0, 0, 0], [20, 0, 0, 5 * math.log(2)], [NAN] * 4], [1, 1, 0, 0]
    )
    sizes = torch.tensor([[70.0, 80.0]])  # height, width
    result = bags.decode_boxes(output, SAMPLE.boxes, SAMPLE, sizes, NUMBERS)
    # 1 / 10 of 20 px to the right; 24 px to the left, so -12 .. 8; 40 px to the right, where of
    # 90 .. 110 the last pixel is left, and twice as high: 40 .. 80; no object
    expected = [[12.0, 10, 32, 30], [0.0, 10, 8, 30], [79.0, 40, 80, 70], [0.0, 0, 1, 1]]
    torch.testing.assert_close(result, torch.tensor([expected]))
    assert not result.requires_grad


def test_no_gradient_flows_through_decoded_boxes() -> None:
    output = deltas([[1.0, 0, 0, 0]] * 4, [1, 1, 0, 0])
    output.deltas.requires_grad_()
    sizes = torch.full((1, 2), 100.0)
    assert not bags.decode_boxes(output, SAMPLE.boxes, SAMPLE, sizes, NUMBERS).requires_grad


def test_scores_are_those_of_the_label_among_all_columns() -> None:
    logits = torch.tensor([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]]).log() + 4
    result = bags.log_scores(logits.bfloat16().float(), torch.tensor([[1, 0]]))
    torch.testing.assert_close(result.exp(), torch.tensor([[0.5, 0.3]]), rtol=0.02, atol=0)
    assert result.dtype == torch.float32


def test_the_best_of_a_bag_is_its_highest_score_and_alone_has_a_gradient() -> None:
    scores = torch.tensor([[[0.3, 0.6, 0.9, 0.99]]], requires_grad=True)
    best = bags.find_best(scores, bags.mark_members(SAMPLE, 3))
    assert best.scores[0, [0, 2]].tolist() == pytest.approx([0.6, 0.9])
    assert best.places[0, [0, 2]].tolist() == [1, 2]
    weights = torch.tensor([[2.0, 0, 5]])
    bags.weighted_sum(best.scores, weights).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [[[0, 2, 5, 0]]]


@pytest.mark.parametrize(
    ("score", "exponent", "most", "share"),
    [
        (0.5, 2, 0.85, 0.25),
        (0.95, 2, 0.85, 0.85),  # 0.9025 is cut
        (0.9, 7.5, 0.85, 0.9**7.5),
        (0.3, 0, 1, 1),
        (0, 5, 0.8, 0),
        (1, 5, 0, 0),
    ],
)
def test_the_confidence_in_a_box_is_a_power_of_its_score(
    score: float, exponent: float, most: float, share: float
) -> None:
    result = bags.blend_share(torch.tensor([score]), exponent, most)
    assert result.item() == pytest.approx(share)


def test_a_blend_keeps_boxes_without_a_bag() -> None:
    annotations = torch.tensor([[[10.0, 10, 30, 30], [1.0, 2, 3, 4]]])
    chosen = torch.tensor([[[14.0, 12, 30, 40], [NAN] * 4]])
    result = bags.blend_boxes(
        annotations, chosen, torch.tensor([[0.25, NAN]]), torch.tensor([[True, False]])
    )
    assert result.tolist() == [[[11, 10.5, 30, 32.5], [1, 2, 3, 4]]]


def test_positive_rois_regress_to_the_new_box_of_their_annotation() -> None:
    boxes = torch.tensor([[[14.0, 10, 34, 30], [NAN] * 4, [50.0, 45, 70, 85]]])
    result = bags.with_box_targets(boxes, SAMPLE, NUMBERS)
    # 10 * 4 / 20; 10 * 2 / 20; the centre 5 px lower: 10 * 5 / 20, and twice as high: 5 log 2
    expected = [[2.0, 0, 0, 0], [1.0, 0, 0, 0], [0.0, 2.5, 0, 5 * math.log(2)], [0.0] * 4]
    torch.testing.assert_close(result.deltas, torch.tensor([expected]))
    for name in ("boxes", "matched", "is_sampled", "is_positive", "labels"):
        assert torch.equal(getattr(result, name), getattr(SAMPLE, name))


def test_a_batch_without_rows_for_annotations_has_no_regression_targets() -> None:
    nothing = rois([0] * 4, [False] * 4, [0] * 4)
    assert not bags.with_box_targets(torch.zeros(1, 0, 4), nothing, NUMBERS).deltas.any()
    assert bags.mark_members(nothing, 0).shape == (1, 0, 4)


def test_bags_have_weights_by_class_and_classes_weigh_equally() -> None:
    labels = torch.tensor([[2, 2, 2, 0], [0, 1, 2, 2]])
    has_bag = torch.tensor([[True, True, True, True], [False, False, True, False]])
    weights = bags.class_weights(labels, has_bag, 4, lambda number: number)
    # four bags of class 2, one of class 0, none of the others: 1 / (4 * 2) and 1 / (1 * 2)
    expected = torch.tensor([[1 / 8, 1 / 8, 1 / 8, 1 / 2], [0, 0, 1 / 8, 0]])
    torch.testing.assert_close(weights, expected)


@drawn(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.floats(0, 1)), min_size=2, max_size=24)
)
@bounded(max_examples=60, deadline=None)
def test_the_weighted_sum_is_the_mean_of_means_and_parts_of_a_batch_add_up(
    rows: list[tuple[int, bool, float]],
) -> None:
    labels, has_bag, values = (torch.tensor(column)[None] for column in zip(*rows, strict=True))
    by_class = [[v for c, has, v in rows if has and c == label] for label in range(4)]
    means = [sum(one) / len(one) for one in by_class if one]
    expected = sum(means) / len(means) if means else 0.0
    weights = bags.class_weights(labels, has_bag, 4, lambda number: number)
    whole = bags.weighted_sum(values.float(), weights)
    assert whole.item() == pytest.approx(expected, abs=1e-5)

    halves = [slice(0, len(rows) // 2), slice(len(rows) // 2, None)]
    numbers = [
        [sum(has and c == k for c, has, _ in rows[half]) for k in range(4)] for half in halves
    ]
    everyones = torch.tensor(numbers).sum(0)
    parts = [
        bags.weighted_sum(
            values[:, half].float(),
            bags.class_weights(labels[:, half], has_bag[:, half], 4, lambda number: everyones),
        )
        for half in halves
    ]
    assert sum(parts, torch.zeros(())).item() == pytest.approx(expected, abs=1e-5)


def test_even_weights_make_a_mean_of_all_bags() -> None:
    has_bag = torch.tensor([[True, False, True], [False, True, True]])
    result = bags.even_weights(has_bag, lambda number: number + 4)  # another process has 4
    torch.testing.assert_close(result, has_bag.float() / 8)
    assert not bags.even_weights(has_bag & False, lambda number: number).any()


def test_values_of_zero_weight_may_be_nan() -> None:
    values = torch.tensor([[NAN, 3.0, -math.inf]], requires_grad=True)
    result = bags.weighted_sum(values, torch.tensor([[0.0, 0.5, 0.0]]))
    assert result.item() == 1.5
    result.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == [[0, 0.5, 0]]


def test_normal_numbers_have_the_quantiles_of_the_normal_distribution() -> None:
    result = bags.normal_numbers(torch.tensor([0.5, 0.841345, 0.022750, 0.0, 1 - 2**-24]))
    assert result[:3].tolist() == pytest.approx([0, 1, -2], abs=1e-4)
    assert result[3].item() == pytest.approx(-4.753, abs=0.02)
    assert 4.5 < result[4].item() < 5


@pytest.mark.parametrize(
    ("share", "step", "has_begun"),
    [(0.0, 0, True), (0.25, 24, False), (0.25, 25, True), (1.0, 99, False)],
)
def test_a_share_of_all_steps_has_to_be_over(share: float, step: int, has_begun: bool) -> None:
    progress = TrainingProgress(epoch=0, step=step, num_steps=100, warm_up_steps_left=0)
    assert bags.has_begun(share, progress) is has_begun


def found_for(boxes: Tensor) -> bags.BagResult:
    return bags.BagResult(
        chosen=boxes + 4,
        log_scores=torch.tensor([[math.log(0.5), math.log(0.25), 1e9]]),
        boxes=torch.cat([boxes[:, :2] + 2, boxes[:, 2:]], dim=1),
        num_members=torch.tensor([[3, 1, 0]]),
    )


def test_the_ledger_has_the_chosen_box_its_score_and_the_size_of_the_bag() -> None:
    annotations = one_image(BOXES[:3], [1, 0, 1])
    outcome = bags.bag_outcome(annotations, found_for(annotations.boxes), is_changing=True)
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED] * 3]  # labels are believed
    assert outcome.matched[0, :2].tolist() == (annotations.boxes[0, :2] + 4).tolist()
    assert outcome.boxes[0, :2].tolist() == (annotations.boxes[0, :2] + 2).tolist()
    assert torch.equal(outcome.matched[0, 2], annotations.boxes[0, 2])  # it has no bag
    assert torch.equal(outcome.boxes[0, 2], annotations.boxes[0, 2])
    nan = pytest.approx(NAN, nan_ok=True)
    assert outcome.confidence[0].tolist() == [pytest.approx(0.5), pytest.approx(0.25), nan]
    assert outcome.loss[0].tolist() == [
        pytest.approx(math.log(2)),
        pytest.approx(math.log(4)),
        nan,
    ]
    assert outcome.num_candidates.tolist() == [[3, 1, 0]]
    assert outcome.labels.tolist() == [[1, 0, 1]]
    assert outcome.threshold.isnan().all()
    assert outcome.is_kept.all()
    assert outcome.metrics["matched"].item() == pytest.approx(2 / 3)


def test_boxes_are_the_annotated_ones_before_the_first_change() -> None:
    annotations = one_image(BOXES[:3], [1, 0, 1])
    outcome = bags.bag_outcome(annotations, found_for(annotations.boxes), is_changing=False)
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert torch.equal(outcome.matched, annotations.boxes)
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert outcome.num_candidates.tolist() == [[3, 1, 0]]


def test_an_ignored_annotation_passes_through() -> None:
    annotations = one_image(BOXES[:3], [1, 0, 1])
    is_ignored = torch.tensor([[False, True, False]])
    annotations = annotations._replace(
        is_box=annotations.is_box & ~is_ignored, is_ignored=is_ignored
    )
    outcome = bags.bag_outcome(annotations, found_for(annotations.boxes), is_changing=True)
    assert torch.equal(outcome.boxes[0, 1], annotations.boxes[0, 1])
    assert torch.equal(outcome.matched[0, 1], annotations.boxes[0, 1])
    assert outcome.verdict[0, 1] == int(Judgement.UNJUDGED)
    assert outcome.num_candidates[0, 1] == 0
    assert not outcome.is_kept[0, 1]
