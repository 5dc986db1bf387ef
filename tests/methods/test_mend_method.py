"""The mend method against hand-computed numbers; C = 3, T has 0.7 and 0.15."""

import math
from typing import Any

import pytest
import torch

from boxmend.errors import UsageError
from boxmend.methods.table import Mend, MendSettings, Rates
from boxmend.runs.ledger import Judgement
from tests.methods.method_batches import (
    LATER,
    NAN,
    NOTHING,
    WARM_UP,
    TableScorer,
    one_image,
    proposals_of,
    rois_of,
    table,
)

BOX = [10.0, 10, 30, 30]
OTHER = [50.0, 50, 80, 80]
LABELS_ONLY = Rates(box=0.0)
# background, then the classes      over the foreground p
FIRST = [0.5, 0.3, 0.1, 0.1]  #     0.6 0.2 0.2
SECOND = [0.2, 0.64, 0.08, 0.08]  # 0.8 0.1 0.1
TORN = [0.0, 0.45, 0.1, 0.45]  #    0.45 0.1 0.45
LATER_ON = [0.0, 0.2, 0.6, 0.2]  #  0.2 0.6 0.2


def make_mend(rates: Rates = LABELS_ONLY, **settings: Any) -> Mend:
    return Mend(4, 3, MendSettings(**settings), rates)


def test_verdicts_and_soft_targets_follow_from_the_posterior() -> None:
    # y = 0: 0.6 * 0.7 = 0.42, 0.2 * 0.15 = 0.03, 0.2 * 0.15 = 0.03; over 0.48: kept
    # y = 1: 0.8 * 0.15 = 0.12, 0.1 * 0.7 = 0.07, 0.1 * 0.15 = 0.015; over 0.205: relabelled to 0
    # y = 1: 0.45 * 0.15 = 0.0675, 0.07, 0.0675; over 0.205: unsure
    annotations = one_image([BOX, OTHER, BOX], [0, 1, 1])
    outcome = make_mend().refine(
        annotations, NOTHING, TableScorer(table([FIRST, SECOND, TORN])), LATER
    )
    expected = torch.tensor(
        [
            [0, 0.875, 0.0625, 0.0625],
            [0, 0.12 / 0.205, 0.07 / 0.205, 0.015 / 0.205],
            [0, 0.0675 / 0.205, 0.07 / 0.205, 0.0675 / 0.205],
        ]
    )
    assert outcome.roi.soft is not None
    torch.testing.assert_close(outcome.roi.soft, expected[None])
    assert outcome.verdict.tolist() == [[Judgement.KEPT, Judgement.RELABELLED, Judgement.DISCARDED]]
    assert outcome.labels.tolist() == [[0, 0, 1]]
    torch.testing.assert_close(outcome.confidence, expected[None].amax(-1))
    assert outcome.is_kept.all()
    assert outcome.roi.is_real.all()
    assert outcome.rpn.is_real.all()
    assert outcome.rpn.soft is None
    shares = {name: round(float(value), 4) for name, value in outcome.metrics.items()}
    assert shares == {"relabelled": 0.3333, "unsure": 0.3333, "matched": 0.0}


def test_memory_averages_the_visits_and_the_loss_is_that_of_the_memory() -> None:
    # second visit: p = (0.8 + 0.2) / 2, (0.1 + 0.6) / 2, (0.1 + 0.2) / 2 = 0.5 0.35 0.15
    # y = 1: 0.5 * 0.15 = 0.075, 0.35 * 0.7 = 0.245, 0.15 * 0.15 = 0.0225, together 0.3425
    # q(1) = 0.5 where p(1) * 0.7 = 0.075 + 0.0225
    method, annotations = make_mend(), one_image([OTHER], [1], rows=[2])
    scorer = TableScorer(table([SECOND]), table([LATER_ON]))
    method.refine(annotations, NOTHING, scorer, LATER)
    outcome = method.refine(annotations, NOTHING, scorer, LATER)
    q = torch.tensor([[[0, 0.075, 0.245, 0.0225]]]) / 0.3425
    torch.testing.assert_close(outcome.roi.soft, q)
    assert outcome.verdict.tolist() == [[Judgement.KEPT]]
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.35)]]))
    torch.testing.assert_close(outcome.threshold, torch.tensor([[-math.log(0.0975 / 0.7)]]))
    state = method.state_dict()
    torch.testing.assert_close(state["memory"][2], torch.tensor([0.5, 0.35, 0.15]))
    assert state["visits"].tolist() == [0, 0, 2, 0, 0]
    assert state["labels"].tolist() == [0, 0, 1, 0, 0]


def test_the_memory_has_the_probability_of_an_object() -> None:
    # background 0.5, then 0.2: objects 0.5 and 0.8, in the mean 0.65
    first, second = [0.5, 0.3, 0.1, 0.1], [0.2, 0.64, 0.08, 0.08]
    method, annotations = make_mend(min_object_score=0.3), one_image([OTHER], [1], rows=[2])
    scorer = TableScorer(table([first]), table([second]))
    for _ in range(2):
        method.refine(annotations, NOTHING, scorer, LATER)
    torch.testing.assert_close(
        method.state_dict()["objects"], torch.tensor([0.0, 0.0, 0.65, 0.0, 0.0])
    )
    other = make_mend(min_object_score=0.3)
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(other.state_dict()["objects"][2], torch.tensor(0.65))
    assert "objects" not in make_mend().state_dict()


def test_annotations_without_an_object_do_not_count_in_the_label_noise() -> None:
    # Half of 800 annotations show their label, a quarter another one, and a quarter no object,
    # where the foreground is as likely to be any class.
    def estimate(min_object_score: float) -> float:
        settings = MendSettings(min_object_score=min_object_score)
        method = Mend(800, 4, settings, Rates(box=0.0))
        kinds, labels = torch.arange(800) % 4, torch.arange(800) % 3
        seen = torch.where(kinds == 2, (labels + 1) % 4, labels)
        seen = torch.where(kinds == 3, torch.arange(800) // 4 % 4, seen)
        scores = torch.full((800, 5), 0.01)
        scores[torch.arange(800), 1 + seen] = 0.95
        scores[kinds == 3] = scores[kinds == 3] * 0.1
        scores[:, 0] = 1 - scores[:, 1:].sum(1)
        boxes = torch.tensor([[10.0, 10, 30, 30]]).expand(800, 4).tolist()
        annotations = one_image(boxes, labels.tolist())
        method.refine(annotations, NOTHING, TableScorer(table(scores.tolist())), LATER)
        return float(method.end_epoch(0, is_warm_up=False)["label_noise"])

    assert estimate(0.5) == pytest.approx(1 / 3 / 0.88, abs=0.02)  # a correction for memory
    assert estimate(0.0) > 0.44


def test_a_new_visit_may_outweigh_the_memory() -> None:
    method, annotations = make_mend(memory_min_weight=1.0), one_image([BOX], [1])
    scorer = TableScorer(table([SECOND]), table([LATER_ON]))
    method.refine(annotations, NOTHING, scorer, LATER)
    outcome = method.refine(annotations, NOTHING, scorer, LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.6)]]))


def test_the_threshold_is_where_the_posterior_is_even() -> None:
    # tau = 2, y = 1: q(1) = 0.5 where p(1)^2 * 0.7 = (0.8^2 + 0.1^2) * 0.15 = 0.0975
    method = make_mend()
    method.load_state_dict({**method.state_dict(), "tau": torch.tensor(2.0)})
    outcome = method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([SECOND])), LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.1)]]))
    even = torch.tensor([[-math.log(math.sqrt(0.0975 / 0.7))]])
    torch.testing.assert_close(outcome.threshold, even)


def test_labels_of_a_lost_class_have_at_least_the_rate_of_right_labels() -> None:
    # y = 1 would be relabelled (q = 0.34); lost, it has 1 - 0.3 = 0.7, and class 0 has
    # 0.3 * 0.12 / 0.135
    method = make_mend()
    lost = torch.tensor([False, True, False])
    method.load_state_dict({**method.state_dict(), "lost": lost})
    outcome = method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([SECOND])), LATER)
    expected = torch.tensor([[[0, 0.3 * 0.12 / 0.135, 0.7, 0.3 * 0.015 / 0.135]]])
    torch.testing.assert_close(outcome.roi.soft, expected)
    assert outcome.verdict.tolist() == [[Judgement.KEPT]]


def test_a_loss_above_the_threshold_means_a_label_not_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    chances = torch.rand(64, 4, generator=generator) ** 3
    chances = chances / chances.sum(-1, keepdim=True)
    annotations = one_image([BOX] * 64, torch.randint(3, (64,), generator=generator).tolist())
    method = Mend(64, 3, rates=LABELS_ONLY)
    state = method.state_dict()
    method.load_state_dict({**state, "tau": torch.tensor(0.7)})
    outcome = method.refine(annotations, NOTHING, TableScorer(table(chances.tolist())), LATER)
    is_flagged = outcome.verdict != int(Judgement.KEPT)
    assert is_flagged.any()
    assert not is_flagged.all()
    assert torch.equal(outcome.loss > outcome.threshold, is_flagged)


def test_without_soft_labels_the_heads_ignore_unsure_annotations() -> None:
    method = make_mend(soft_labels=False)
    annotations = one_image([BOX, OTHER, BOX], [0, 1, 1])
    outcome = method.refine(annotations, NOTHING, TableScorer(table([FIRST, SECOND, TORN])), LATER)
    assert outcome.roi.soft is None
    assert outcome.roi.is_real.tolist() == [[True, True, False]]
    assert outcome.roi.is_ignored.tolist() == [[False, False, True]]
    assert outcome.rpn.is_real.tolist() == [[True, True, True]]
    assert outcome.is_kept.tolist() == [[True, True, False]]


def test_a_queue_of_losses_may_judge_in_place_of_the_posterior() -> None:
    # p(y) over the foreground: 0.6, 0.1 and 0.1; r = 0.7 of a queue of 10 is its 7th loss, -log 0.5
    method = make_mend(judgement="queue", queue_length=10)
    queue = -torch.tensor([0.5] * 7 + [0.01] * 3).log()
    method.load_state_dict({**method.state_dict(), "queue": queue})
    annotations = one_image([BOX, OTHER, BOX], [0, 1, 1])
    outcome = method.refine(annotations, NOTHING, TableScorer(table([FIRST, SECOND, TORN])), LATER)
    assert outcome.verdict.tolist() == [[Judgement.KEPT, Judgement.RELABELLED, Judgement.DISCARDED]]
    assert outcome.labels.tolist() == [[0, 0, 1]]  # 0.8 is above a half, 0.45 is not
    torch.testing.assert_close(outcome.loss, -torch.tensor([[0.6, 0.1, 0.1]]).log())
    torch.testing.assert_close(outcome.threshold, torch.full((1, 3), math.log(2)))
    assert outcome.roi.soft is None
    assert outcome.roi.is_ignored.tolist() == [[False, False, True]]
    pushed = torch.cat([queue[3:], -torch.tensor([0.6, 0.1, 0.1]).log()])
    torch.testing.assert_close(method.state_dict()["queue"], pushed)


def test_background_may_stay_in_the_evidence() -> None:
    method = make_mend(foreground_only=False)
    outcome = method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.3)]]))


def test_a_temperature_that_is_set_is_not_fitted() -> None:
    method = make_mend(temperature=2.0)
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), LATER)
    assert method.end_epoch(0, is_warm_up=False)["tau"] == 2


def test_warm_up_trains_on_unchanged_annotations_and_collects_evidence() -> None:
    method = make_mend(Rates(box=0.2))
    annotations = one_image([BOX, OTHER], [0, 1])
    scorer = TableScorer(table([FIRST, SECOND] + [FIRST] * 100))
    outcome = method.refine(annotations, proposals_of([[12.0, 10, 32, 30]], [0.9]), scorer, WARM_UP)
    assert torch.equal(scorer.asked[0][:, :2], annotations.boxes)
    for boxes in (outcome.boxes, outcome.matched, outcome.rpn.boxes, outcome.roi.boxes):
        assert torch.equal(boxes, annotations.boxes)
    for labels in (outcome.labels, outcome.rpn.labels, outcome.roi.labels):
        assert torch.equal(labels, annotations.labels)
    assert outcome.roi.soft is None
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED] * 2]
    assert outcome.num_candidates.tolist() == [[1, 0]]
    torch.testing.assert_close(outcome.loss, -torch.tensor([[0.6, 0.1]]).log())
    assert outcome.is_kept.all()
    memory = torch.tensor([[0.6, 0.2, 0.2], [0.8, 0.1, 0.1]])
    torch.testing.assert_close(method.state_dict()["memory"][:2], memory)


def test_targets_of_warm_up_are_the_posterior_of_the_current_prediction() -> None:
    method = make_mend()
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), WARM_UP)
    # y = 1, s = 0.2 0.64 0.08 0.08: s T = 0.096 0.056 0.012, together 0.164; no object: background
    logits = torch.tensor([[SECOND, SECOND, [NAN] * 4]]).log()
    rois = rois_of([1, 0, 0], [True, False, False])
    targets = method.class_targets(logits, rois, None, WARM_UP)  # type: ignore[arg-type]
    expected = torch.tensor(
        [[[0, 0.096 / 0.164, 0.056 / 0.164, 0.012 / 0.164], [1, 0, 0, 0], [1, 0, 0, 0]]]
    )
    torch.testing.assert_close(targets, expected)


def test_targets_of_warm_up_have_the_gradient_of_the_forward_corrected_loss() -> None:
    method = make_mend()
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([FIRST])), WARM_UP)
    logits = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    rois = rois_of([0, 1, 2, 2, 0, 0], [True] * 4 + [False] * 2)
    targets = method.class_targets(logits.detach(), rois, None, WARM_UP)  # type: ignore[arg-type]
    assert targets is not None
    loss = -(targets[0, :4] * logits[0, :4].log_softmax(-1)).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    # -log sum_c s(c) T[c, y] for the four objects; T maps background to background
    transition = torch.eye(4)
    transition[1:, 1:] = method.state_dict()["transition"]
    columns = torch.where(rois.is_positive, rois.labels + 1, 0)[0, :4]
    noisy = logits[0, :4].softmax(-1) @ transition
    corrected = -noisy[torch.arange(4), columns].log().sum()
    (expected,) = torch.autograd.grad(corrected, logits)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize(
    ("method", "is_warm_up"),
    [
        (make_mend(), False),
        (make_mend(correct_warm_up_loss=False), True),
        (make_mend(Rates(label=0.0)), True),
    ],
)
def test_other_steps_have_no_class_targets(method: Mend, is_warm_up: bool) -> None:
    scorer = TableScorer(table([FIRST] * 101))
    progress = WARM_UP if is_warm_up else LATER
    method.refine(one_image([BOX], [0]), NOTHING, scorer, progress)
    logits, rois = torch.zeros(1, 1, 4), rois_of([0], [True])
    assert method.class_targets(logits, rois, None, progress) is None  # type: ignore[arg-type]


def test_known_rates_of_zero_change_no_annotation_and_score_no_boxes() -> None:
    method = make_mend(Rates(label=0.0, box=0.0))
    annotations = one_image([BOX], [2])
    outcome = method.refine(annotations, NOTHING, TableScorer(), LATER)
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert outcome.labels.tolist() == [[2]]
    assert outcome.roi.soft is None
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED]]


def test_an_epoch_without_visits_keeps_the_initial_estimates() -> None:
    figures = make_mend(Rates()).end_epoch(0, is_warm_up=False)
    beliefs = {"label_noise": 0.3, "tau": 1.0, "box_noise": 0.0, "keep": 1.0, "lost_classes": 0}
    nothing = {"box_noise_low": 0.0, "box_noise_high": pytest.approx(0.75)}  # known of boxes
    nothing |= {"held_at_border": 0.0}
    assert figures == beliefs | nothing


def test_a_state_of_another_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match=r"memory of the saved state has shape \[5, 3\].*\[9, 3\]"):
        Mend(8, 3).load_state_dict(make_mend().state_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"raw_box_share": 1.5}, "raw_box_share is 1.5; expected a share from 0 to 1"),
        ({"temperature": 0.0}, "temperature is 0.0; expected a number above 0"),
        ({"judgement": "mine"}, "judgement is 'mine'"),
        ({"boxes": "median"}, "boxes is 'median'; expected 'edges' or 'vote' or 'average'"),
        ({"discarded": "lost"}, "discarded is 'lost'"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"num_proposals": 0}, "num_proposals is 0; expected 1 or more"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MendSettings(**settings)  # type: ignore[arg-type]  # that is the test
