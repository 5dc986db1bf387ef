"""The published method behind the contract of methods: rates, warm-up, the queue, roles."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput
from boxmend.detector.assignment import assign
from boxmend.detector.numbers import DetectorNumbers
from boxmend.errors import UsageError
from boxmend.methods.equations import VARIANTS, EnabledSteps
from boxmend.methods.estimation import ESTIMATION
from boxmend.methods.outcomes import neutralise_padding
from boxmend.methods.paper import resolve_constants
from boxmend.methods.table import (
    MethodInputs,
    PaperMethod,
    PublishedSettings,
    Rates,
    TrainingProgress,
    build,
)
from boxmend.runs.ledger import Judgement
from tests.methods.method_batches import (
    LATER,
    NOTHING,
    WARM_UP,
    TableScorer,
    WaveScorer,
    one_image,
    proposals_of,
    random_batch,
    table,
)

BOX = [10.0, 10, 30, 30]
OTHER = [50.0, 50, 80, 80]
SURE = [0.1, 0.8, 0.05, 0.05]
UNSURE = [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("label", "box", "acceptance", "alpha"),
    [(None, None, 0.6, 0.4), (0.2, 0.2, 0.8, 0.2), (0.6, 0.5, 0.5, 0.4), (0.4, 0.3, 0.6, 0.3)],
)
def test_acceptance_and_alpha_follow_from_the_rates(
    label: float | None, box: float | None, acceptance: float, alpha: float
) -> None:
    constants = resolve_constants(PublishedSettings(), Rates(label, box), EnabledSteps())
    assert constants.acceptance == pytest.approx(acceptance)
    assert constants.alpha == pytest.approx(alpha)
    assert constants.steps == EnabledSteps()


def test_settings_override_values_that_follow_from_a_rate() -> None:
    settings = PublishedSettings(acceptance=0.9, alpha=0.3)
    constants = resolve_constants(settings, Rates(0.2, 0.2), EnabledSteps())
    assert (constants.acceptance, constants.alpha) == (0.9, 0.3)


def test_a_rate_of_zero_switches_its_half_off() -> None:
    no_labels = resolve_constants(PublishedSettings(), Rates(label=0.0), EnabledSteps())
    no_boxes = resolve_constants(PublishedSettings(), Rates(box=0.0), EnabledSteps())
    assert no_labels.steps == VARIANTS["br"]
    assert no_boxes.steps == VARIANTS["lr"]


def test_two_zero_rates_give_the_baseline_which_scores_no_boxes() -> None:
    method = PaperMethod("mend-paper", PublishedSettings(), Rates(0.0, 0.0))
    annotations = one_image([BOX], [1])
    outcome = method.refine(annotations, NOTHING, TableScorer(), LATER)
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED]]
    assert outcome.loss.isnan().all()


def test_losses_of_the_baseline_are_recorded_on_request() -> None:
    method = PaperMethod("baseline", PublishedSettings(record_losses=True))
    outcome = method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([SURE])), LATER)
    torch.testing.assert_close(outcome.loss, torch.tensor([[-math.log(0.05)]]))
    assert method.queue.isinf().all()


@pytest.mark.parametrize(
    ("discarded", "rpn", "head", "ignored"),
    [
        ("background", [True, True, False], [True, True, False], [False] * 3),
        ("rpn_only", [True] * 3, [True, True, False], [False] * 3),
        ("ignore", [True] * 3, [True, True, False], [False, False, True]),
    ],
)
def test_discarded_annotations_have_the_role_of_the_setting(
    discarded: str, rpn: list[bool], head: list[bool], ignored: list[bool]
) -> None:
    # T = 1 from a queue of four: r = 0.5 is its second loss. Losses: -log 0.8 = 0.22 passes,
    # -log 0.05 = 3 is relabelled to class 0 (0.8), -log 0.1 = 2.3 has no class above 0.5.
    settings = PublishedSettings(
        queue_length=4,
        discarded=discarded,  # type: ignore[arg-type]  # one of the three
    )
    method = PaperMethod("lr", settings, Rates(label=0.5))
    method.load_state_dict({"queue": torch.tensor([1.0, 9, 1, 9])})
    outcome = method.refine(
        one_image([BOX, OTHER, BOX], [0, 1, 2]),
        NOTHING,
        TableScorer(table([SURE, SURE, UNSURE])),
        LATER,
    )
    assert outcome.verdict.tolist() == [[Judgement.KEPT, Judgement.RELABELLED, Judgement.DISCARDED]]
    assert outcome.labels.tolist() == [[0, 0, 2]]
    assert outcome.rpn.is_real.tolist() == [rpn]
    assert outcome.roi.is_real.tolist() == [head]
    assert outcome.roi.is_ignored.tolist() == [ignored]
    assert outcome.roi.is_box.tolist() == [[a or b for a, b in zip(head, ignored, strict=True)]]
    assert outcome.is_kept.tolist() == [head]
    assert outcome.threshold.tolist() == [[1.0] * 3]
    assert float(outcome.metrics["threshold"]) == 1
    expected = torch.tensor([9.0, -math.log(0.8), -math.log(0.05), -math.log(0.1)])
    torch.testing.assert_close(method.queue, expected)


def test_only_boxes_change_and_labels_are_unjudged_if_only_boxes_are_repaired() -> None:
    # b* = 0.2 * p* + 0.8 * b = (10.4, ..); (b* + b1*) / 2 with b1* = (14, ..)
    method = PaperMethod("br", PublishedSettings(num_candidates=1), Rates(box=0.2))
    regressed = [[12.0, 10, 32, 30], [14.0, 10, 34, 30]]
    outcome = method.refine(
        one_image([BOX], [1]),
        proposals_of([[12.0, 10, 32, 30]], [0.9]),
        TableScorer(table([SURE, SURE], regressed)),
        LATER,
    )
    torch.testing.assert_close(outcome.matched, torch.tensor([[[10.4, 10, 30.4, 30]]]))
    torch.testing.assert_close(outcome.roi.boxes, torch.tensor([[[12.2, 10, 32.2, 30]]]))
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED]]
    assert outcome.is_kept.all()
    assert float(outcome.metrics["matched"]) == 1


@pytest.mark.parametrize(("left", "is_pushed"), [(11, False), (10, True), (1, True)])
def test_the_last_steps_of_warm_up_fill_the_queue(left: int, is_pushed: bool) -> None:
    # the losses of its last 10 steps are pushed
    method = PaperMethod("cinj", PublishedSettings(queue_warm_up_steps=10, queue_length=2))
    scorer = TableScorer(table([SURE]))
    annotations = one_image([BOX], [1])
    outcome = method.refine(
        annotations, NOTHING, scorer, TrainingProgress(0, 25 - left, 100, warm_up_steps_left=left)
    )
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert outcome.labels.tolist() == [[1]]
    assert outcome.verdict.tolist() == [[Judgement.UNJUDGED]]
    assert outcome.is_kept.all()
    newest = -math.log(0.05) if is_pushed else math.inf
    assert method.queue.tolist() == [math.inf, pytest.approx(newest)]
    if is_pushed:
        assert torch.equal(scorer.asked[0], annotations.boxes)
    else:
        assert not scorer.asked


def test_warm_up_fills_the_queue_with_losses_over_the_judged_classes() -> None:
    settings = PublishedSettings(queue_length=2, judged_classes="foreground")
    method = PaperMethod("cinj", settings)
    method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([SURE])), WARM_UP)
    assert method.queue.tolist() == [math.inf, pytest.approx(-math.log(0.05 / 0.9))]


def test_a_label_is_judged_by_the_classes_of_the_setting() -> None:
    # T = 1.5. Class 1 of UNSURE has 0.2: L = 1.61 is noisy, and 0.3 is not confident. Without
    # background it has 0.2 / 0.6: L = 1.10 is clean.
    for classes, verdict in (("all", Judgement.DISCARDED), ("foreground", Judgement.KEPT)):
        settings = PublishedSettings(
            queue_length=2,
            judged_classes="foreground" if classes == "foreground" else "all",
        )
        method = PaperMethod("lr", settings, Rates(label=0.5))
        method.load_state_dict({"queue": torch.tensor([1.5, 9])})
        outcome = method.refine(one_image([BOX], [1]), NOTHING, TableScorer(table([UNSURE])), LATER)
        assert outcome.verdict.tolist() == [[verdict]]


def test_warm_up_scores_no_boxes_if_no_label_will_be_judged() -> None:
    method = PaperMethod("br", PublishedSettings(queue_warm_up_steps=1000))
    method.refine(one_image([BOX], [1]), NOTHING, TableScorer(), WARM_UP)
    assert method.queue.isinf().all()


def test_a_queue_of_another_length_is_refused() -> None:
    method = PaperMethod("lr", PublishedSettings())
    with pytest.raises(
        UsageError, match=r"a queue of 3 losses, but published\.queue_length is 128"
    ):
        method.load_state_dict({"queue": torch.zeros(3)})


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        (Rates(label=-0.1), "label_noise is -0.1; expected a share from 0 to 1"),
        (Rates(box=math.nan), "box_noise is nan"),
    ],
)
def test_rates_out_of_range_are_refused(rates: Rates, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PaperMethod("lr", PublishedSettings(), rates)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown variant 'mend'; known: baseline, br"):
        PaperMethod("mend", PublishedSettings())


def test_unknown_rates_are_estimated_and_set_r_and_alpha() -> None:
    method = build("mend-paper", MethodInputs(400, 4))
    assert isinstance(method, PaperMethod)
    assert method.estimator is not None
    assert (method.constants.acceptance, method.constants.alpha) == (0.6, 0.4)  # a guess
    state = method.state_dict()
    truth = torch.arange(400) % 4
    labels = torch.where(torch.arange(400) % 5 == 0, (truth + 1) % 4, truth)  # a fifth is wrong
    state["memory"][:-1] = 0.97 * torch.eye(4)[truth] + 0.0075
    state["visits"][:-1], state["labels"][:-1] = 3, labels
    method.load_state_dict(state)
    assert (method.constants.acceptance, method.constants.alpha) == (0.6, 0.4)  # none yet
    assert method.constants.steps == EnabledSteps()
    figures = method.end_epoch(2, is_warm_up=True)
    assert figures["label_noise"] == pytest.approx(0.2 / (1 - ESTIMATION.memorised_share), abs=0.03)
    assert method.constants.acceptance == pytest.approx(1 - figures["label_noise"])
    assert figures["box_noise"] == 0  # nothing was seen of boxes: that half is off
    assert not method.constants.steps.match
    assert not method.constants.steps.average
    assert method.report()["label_noise_low"] <= 0.2 <= method.report()["label_noise_high"]


@pytest.mark.parametrize(
    ("judged_box", "num_own"), [("matched", 2), ("proposal", 3), ("annotation", 3)]
)
def test_the_heads_are_called_once_for_the_method_and_its_estimates(
    judged_box: Literal["matched", "proposal", "annotation"], num_own: int
) -> None:
    annotations, proposals = random_batch(3)
    wave, asked = WaveScorer(), list[int]()

    def scorer(boxes: Tensor, /) -> SecondStageOutput:
        asked.append(boxes.shape[1])
        return wave(boxes)

    settings = PublishedSettings(judged_box=judged_box)
    method = build("mend-paper", MethodInputs(100, 3, settings=settings))
    alone = build("mend-paper", MethodInputs(100, 3))
    assert isinstance(method, PaperMethod)
    assert isinstance(alone, PaperMethod)
    assert method.estimator is not None
    assert alone.estimator is not None
    method.refine(annotations, proposals, scorer, LATER)
    count = annotations.boxes.shape[1]
    assert asked == [num_own * count + 100]  # b, b*, the judged box if it is another one, and P_h
    alone.estimator.observe(neutralise_padding(annotations), proposals, wave)
    assert alone.estimator.state["visits"].sum() > 0
    assert alone.estimator.state["residuals"].sum() > 0
    for name, seen in alone.estimator.state.items():
        torch.testing.assert_close(method.estimator.state[name], seen)


@pytest.mark.parametrize(("name", "rates"), [("lr", Rates(label=0.4)), ("baseline", Rates())])
def test_known_or_unneeded_rates_are_not_estimated(name: str, rates: Rates) -> None:
    method = build(name, MethodInputs(4, 3, rates))
    assert isinstance(method, PaperMethod)
    assert method.estimator is None
    assert method.end_epoch(0, is_warm_up=False) == {}
    assert method.report() == {}


@pytest.mark.parametrize(
    ("discarded", "rpn", "head"),
    [
        ("background", "negative", "negative"),
        ("rpn_only", "positive", "negative"),
        ("ignore", "positive", "neither"),
    ],
)
def test_the_place_of_a_discarded_annotation_trains_as_the_setting_says(
    discarded: Literal["background", "ignore", "rpn_only"], rpn: str, head: str
) -> None:
    # T = 1: the label of OTHER has -log 0.1 = 2.3 and no class above 0.5, that of BOX -log 0.8
    settings = PublishedSettings(queue_length=2, discarded=discarded)
    method = PaperMethod("lr", settings, Rates(label=0.5))
    method.load_state_dict({"queue": torch.tensor([1.0, 9])})
    outcome = method.refine(
        one_image([BOX, OTHER], [0, 2]), NOTHING, TableScorer(table([SURE, UNSURE])), LATER
    )
    assert outcome.verdict.tolist() == [[Judgement.KEPT, Judgement.DISCARDED]]
    # an IoU of 0.5 with OTHER, one of 27 / 33 with it, and none with any annotation
    half, near, far = [60.0, 50, 90, 80], [53.0, 50, 83, 80], [0.0, 60, 20, 80]
    candidates = torch.tensor([[BOX, near, far, half]])
    numbers = DetectorNumbers()
    first, second = (
        assign(candidates, targets, thresholds=thresholds, ignore_from=numbers.ignore_overlap)
        for targets, thresholds in (
            (outcome.rpn, numbers.rpn_thresholds),
            (outcome.roi, numbers.roi_thresholds),
        )
    )
    for assigned, expected in ((first, rpn), (second, head)):
        assert assigned.is_positive[0, :3].tolist() == [True, expected == "positive", False]
        assert assigned.is_negative[0, :3].tolist() == [False, expected == "negative", True]
    assert bool(second.is_negative[0, 3]) == (head == "negative")
