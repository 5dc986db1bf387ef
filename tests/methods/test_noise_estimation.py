"""Estimates at the end of an epoch: recovered rates, fixed known rates, disabled box repair."""

import math

import pytest
import torch
from torch import Tensor

from boxmend.detector import Proposals, SecondStageOutput
from boxmend.methods.equations import NoiseModel, fit_temperature, symmetric_transition
from boxmend.methods.estimation import (
    ESTIMATION,
    Estimate,
    find_confusions,
    find_lost_classes,
    fit_label_noise,
    keep_higher_rate,
    raw_box_share_at,
    visited_evidence,
)
from boxmend.methods.table import BatchAnnotations, Mend, MendSettings, Rates
from tests.methods.method_batches import LATER, WARM_UP, noisy_evidence


@pytest.mark.parametrize("full", [True, False])
def test_the_rate_is_recovered(full: bool) -> None:
    model = fit_label_noise(*noisy_evidence(0.4), previous=0.3, full=full)
    assert model.rate == pytest.approx(0.4, abs=0.04)
    assert not model.is_full


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_a_known_rate_leaves_only_tau_to_be_fitted(tau: float) -> None:
    result = fit_temperature(*noisy_evidence(0.4, tau=tau), symmetric_transition(0.4, 4))
    assert result == pytest.approx(tau, rel=0.15)


def test_uninformative_evidence_keeps_tau_at_one() -> None:
    evidence, labels = torch.full((5, 4), 0.25), torch.tensor([0, 1, 2, 3, 0])
    assert fit_temperature(evidence, labels, symmetric_transition(0.4, 4)) == pytest.approx(1)


def test_a_reported_estimate_is_corrected_for_memorised_labels() -> None:
    figures = Estimate(0.33, 0.3, 0.36).figures("label_noise")
    assert figures["label_noise"] == pytest.approx(0.33 / (1 - ESTIMATION.memorised_share))
    assert figures["label_noise_low"] == 0.3
    assert figures["label_noise_high"] == pytest.approx(0.36 / (1 - ESTIMATION.max_memorised_share))
    assert Estimate(0.95, 0.9, 0.95).figures("x") == {"x": 1.0, "x_low": 0.9, "x_high": 1.0}


def test_predictions_that_have_not_seen_the_labels_need_no_correction() -> None:
    figures = Estimate(0.33, 0.3, 0.36).figures("x", is_memorised=False)
    assert figures == {"x": 0.33, "x_low": 0.3, "x_high": 0.36}
    assert Estimate(0.0, 0.0, 0.0).figures("x") == {"x": 0.0, "x_low": 0.0, "x_high": 0.0}


def test_confusions_are_shares_of_the_annotations_with_a_label() -> None:
    # T: nothing is ever mistaken for 0; class 2 is called 1 every other time
    transition = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]])
    # three called 1: p(1), p(2) = 0.5, 0.5 -> q(2) = 0.25 / 0.75; 0.2, 0.8 -> 0.4 / 0.6; 1, 0 -> 0
    evidence = torch.tensor([[0.0, 0.5, 0.5], [0, 0.2, 0.8], [0, 1, 0], [0, 0, 1]])
    result = find_confusions(evidence, torch.tensor([1, 1, 1, 2]), transition, 1.0)
    assert [(y, c) for y, c, _, _ in result] == [(1, 2)]
    assert result[0][3] == pytest.approx(1 / 3 + 2 / 3)
    assert result[0][2] == pytest.approx(1 / 3)
    assert (
        find_confusions(evidence, torch.tensor([1, 1, 1, 2]), transition, 1.0, min_share=0.4) == []
    )


def test_the_report_names_noise_and_confusions() -> None:
    evidence, labels = noisy_evidence(0.4)
    method = Mend(len(labels), 4, rates=Rates(box=0.0))
    state = method.state_dict()
    state["memory"][:-1], state["visits"][:-1], state["labels"][:-1] = evidence, 3, labels
    method.load_state_dict(state)
    method.end_epoch(0, is_warm_up=False)
    report = method.report()
    assert report["label_noise_low"] < 0.4 < report["label_noise_high"]
    assert report["box_noise"] == 0
    assert len(report["confusions"]) == 12  # 0.4 / 3 of each of the other three classes
    shares = [share for _, _, share, _ in report["confusions"]]
    assert shares == pytest.approx([0.4 / 3] * 12, abs=0.04)


def test_estimates_rise_but_do_not_fall() -> None:
    evidence, labels = noisy_evidence(0.4, tau=2.0)
    low, high = (NoiseModel(rate, 1.0, symmetric_transition(rate, 4), False) for rate in (0.3, 0.4))
    assert keep_higher_rate(high, evidence, labels, low) is high
    held = keep_higher_rate(low, evidence, labels, high)
    assert held.rate == 0.4
    assert torch.equal(held.transition, high.transition)
    assert held.tau == pytest.approx(2, rel=0.15)  # fitted again


@pytest.mark.parametrize(
    ("rate", "keep"), [(0.0, 1.0), (0.1, 0.75), (0.2, 0.5), (0.3, 0.4375), (0.4, 0.375), (1, 0.375)]
)
def test_the_share_of_the_raw_box_falls_with_the_known_noise(rate: float, keep: float) -> None:
    assert raw_box_share_at(rate) == pytest.approx(keep)


def test_only_visited_annotations_count_and_never_the_row_of_the_padding() -> None:
    memory, visits = torch.eye(4), torch.tensor([1, 0, 2, 5])
    evidence, labels = visited_evidence(memory, visits, torch.tensor([3, 2, 1, 0]))
    assert torch.equal(evidence, torch.eye(4)[[0, 2]])
    assert labels.tolist() == [3, 1]


class Fixed:
    """Always the same scores."""

    def __init__(self, scores: SecondStageOutput):
        self.scores = scores

    def __call__(self, boxes: Tensor, /) -> SecondStageOutput:
        return self.scores


def one_pass(method: Mend, noise: float, error: float, sure: float = 0.7) -> BatchAnnotations:
    """600 images with one object each; proposals regress to the truth up to an error."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([300.0, 200, 500, 600]).expand(600, 1, 4)
    sides = torch.tensor([200.0, 400, 200, 400])
    raw = truth + noise * sides * (2 * torch.rand(600, 1, 4, generator=generator) - 1)
    seen = truth + error * sides * torch.randn(600, 1, 4, generator=generator)
    annotations = BatchAnnotations(
        boxes=raw,
        labels=torch.ones(600, 1, dtype=torch.int64),
        is_box=torch.ones(600, 1, dtype=torch.bool),
        is_ignored=torch.zeros(600, 1, dtype=torch.bool),
        rows=torch.arange(600)[:, None],
        sizes=torch.full((600, 2), 1000.0),
    )
    chances = torch.tensor([0.9 - sure, 0.05, sure, 0.05]).expand(600, 2, 4)
    regressed = torch.cat([raw, seen], dim=1)[:, :, None].expand(600, 2, 3, 4)  # own, proposal's
    proposals = Proposals(
        truth, torch.ones(600, 1), torch.ones(600, 1).bool(), torch.zeros(600).bool()
    )
    scorer = Fixed(SecondStageOutput(chances.log(), chances, regressed))
    method.refine(annotations, proposals, scorer, WARM_UP)
    return annotations


def nothing_new() -> tuple[Proposals, Fixed]:
    """No proposals, and uniform scores of the annotated boxes."""
    chances, boxes = torch.full((600, 2, 4), 0.25), torch.zeros(600, 2, 3, 4)
    none = torch.zeros(600, 1).bool()
    proposals = Proposals(torch.zeros(600, 1, 4), torch.zeros(600, 1), none, none[:, 0])
    return proposals, Fixed(SecondStageOutput(chances.log(), chances, boxes))


def test_box_noise_is_estimated_in_warm_up_and_sets_the_shares() -> None:
    method = Mend(600, 3, MendSettings(num_proposals=1))
    one_pass(method, noise=0.4, error=0.04)
    figures = method.end_epoch(0, is_warm_up=False)
    assert method.estimator.box.noise == pytest.approx(0.4, abs=0.06)
    assert figures["box_noise"] == pytest.approx(
        method.estimator.box.noise / (1 - ESTIMATION.memorised_share)
    )
    assert figures["box_noise_low"] <= 0.4 <= figures["box_noise_high"]
    assert figures["keep"] == pytest.approx(0.4)  # the least
    state = method.state_dict()
    # the reported value, not the measured one
    assert float(state["noise"]) == pytest.approx(figures["box_noise"])
    assert float(state["alpha"]) == pytest.approx(min(figures["box_noise"], 0.4))
    assert not state["residuals"].any()  # the next epoch starts from zero


@pytest.mark.parametrize("box_noise", [None, 0.2])
def test_a_state_with_fewer_numbers_determines_the_repair_of_boxes(box_noise: float | None) -> None:
    method, other = (
        Mend(600, 3, MendSettings(num_proposals=1), Rates(box=box_noise)) for _ in range(2)
    )
    one_pass(method, noise=0.4, error=0.04)
    method.end_epoch(0, is_warm_up=False)
    state = method.state_dict()
    other.load_state_dict({k: v for k, v in state.items() if k not in ("noise", "vote_error")})
    for name, value in other.state_dict().items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(state[name])), name


def test_later_epochs_may_raise_the_box_noise_but_not_lower_it() -> None:
    method = Mend(600, 3, MendSettings(num_proposals=1))
    noises = []
    for epoch, noise in enumerate((0.4, 0.2, 0.3, 0.1, 0.4)):
        annotations = one_pass(method, noise=noise, error=0.04)
        method.refine(annotations, *nothing_new(), LATER)  # the warm-up is over
        noises.append(method.end_epoch(epoch, is_warm_up=False)["box_noise"])
    assert noises[1] < noises[0] - 0.1  # the first epochs prove nothing
    assert noises[3] == noises[2]
    assert noises[4] > noises[3]


def test_votes_with_little_evidence_are_not_measured() -> None:
    method = Mend(600, 3, MendSettings(num_proposals=1))
    one_pass(method, noise=0.4, error=0.04, sure=0.09)
    assert not method.state_dict()["residuals"].any()


def test_repair_of_clean_boxes_is_disabled() -> None:
    method = Mend(600, 3, MendSettings(num_proposals=1))
    annotations = one_pass(method, noise=0.0, error=0.05)
    figures = method.end_epoch(0, is_warm_up=False)
    assert figures["box_noise"] == pytest.approx(0, abs=0.02)
    assert figures["keep"] == 1
    assert float(method.state_dict()["alpha"]) == 0
    proposals = Proposals(
        annotations.boxes + 9, torch.ones(600, 1), annotations.is_box, torch.zeros(600).bool()
    )
    chances = torch.full((600, 2, 4), 0.25)
    boxes = torch.cat([annotations.boxes, annotations.boxes + 9], dim=1)[:, :, None].expand(
        600, 2, 3, 4
    )
    outcome = method.refine(
        annotations, proposals, Fixed(SecondStageOutput(chances.log(), chances, boxes)), LATER
    )
    assert torch.equal(outcome.boxes, annotations.boxes)
    assert torch.equal(outcome.matched, annotations.boxes)


def test_the_label_rate_is_estimated_from_the_memory() -> None:
    evidence, labels = noisy_evidence(0.4)
    for known, rate, expected in (
        (None, 0.4, 0.4 / (1 - ESTIMATION.memorised_share)),
        (0.25, 0.25, 0.25),
    ):
        method = Mend(len(labels), 4, rates=Rates(known, 0.0))
        state = method.state_dict()
        state["memory"][:-1], state["visits"][:-1], state["labels"][:-1] = evidence, 3, labels
        method.load_state_dict(state)
        figures = method.end_epoch(0, is_warm_up=False)
        assert figures["label_noise"] == pytest.approx(expected, abs=0.04)
        assert method.estimator.rate == pytest.approx(rate, abs=0.04)
        assert math.isclose(figures["tau"], float(method.state_dict()["tau"]))
        diagonal = method.state_dict()["transition"].diagonal()
        torch.testing.assert_close(diagonal, torch.full((4,), 1 - method.estimator.rate))


def test_a_known_rate_of_zero_is_not_touched_by_the_evidence() -> None:
    method = Mend(1, 4, rates=Rates(label=0.0))
    figures = method.end_epoch(0, is_warm_up=False)
    assert (figures["label_noise"], figures["tau"]) == (0.0, 1.0)


def test_a_class_that_the_detector_takes_for_another_is_lost() -> None:
    # a third each of three classes, 40 % noise: labels are a third each, whatever the detector says
    labels, noise = torch.arange(300) % 3, symmetric_transition(0.4, 3)
    right = torch.full((300, 3), 1 / 3)
    assert find_lost_classes(right, labels, noise).tolist() == [False] * 3
    swallowed = torch.tensor([0.1, 0.57, 0.33]).expand(300, 3)
    assert find_lost_classes(swallowed, labels, noise).tolist() == [True, False, False]
    assert not find_lost_classes(
        swallowed[:12], labels[:12], noise
    ).any()  # four annotations: too few
    for most in (0.65, 0.9):  # labels tell next to nothing, or more often lie than not
        assert not find_lost_classes(swallowed, labels, symmetric_transition(most, 3)).any()


def test_a_class_that_is_truly_rare_is_not_lost() -> None:
    # a tenth of class 0; at 40 % noise its label has 0.1 * 0.6 + 0.9 * 0.2 = 0.24 of all
    labels = torch.tensor([0] * 24 + [1] * 38 + [2] * 38)
    posteriors = torch.tensor([0.09, 0.455, 0.455]).expand(100, 3)
    assert not find_lost_classes(posteriors, labels, symmetric_transition(0.4, 3)).any()


def test_a_class_whose_label_many_others_carry_is_not_lost() -> None:
    # 0.8 persons, 0.1 plants and 0.1 chairs; 40 % of each are called by the next one's name, so
    # that of 100 labels 0.8 * 0.6 + 0.1 * 0.4 = 52 are person, 0.1 * 0.6 + 0.8 * 0.4 = 38 plant and
    # 10 chair
    labels = torch.tensor([0] * 52 + [1] * 38 + [2] * 10)
    result = torch.tensor([0.8, 0.1, 0.1]).expand(100, 3)
    to_the_next = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]])
    alike = symmetric_transition(0.4, 3)
    assert find_lost_classes(result, labels, alike).tolist() == [False, True, False]
    assert not find_lost_classes(result, labels, to_the_next).any()
    without_plants = torch.tensor([0.86, 0.04, 0.1]).expand(100, 3)
    assert find_lost_classes(without_plants, labels, to_the_next).tolist() == [False, True, False]


def test_labels_of_a_lost_class_are_trusted_again() -> None:
    evidence = torch.tensor([0.002, 0.996, 0.002]).expand(300, 3)  # everything is of class 1
    labels = torch.arange(300) % 3
    method = Mend(300, 3, MendSettings(temperature=1.0), Rates(label=0.4, box=0.0))
    state = method.state_dict()
    state["memory"][:-1], state["visits"][:-1], state["labels"][:-1] = evidence, 3, labels
    method.load_state_dict(state)
    assert method.end_epoch(0, is_warm_up=False)["lost_classes"] == 0  # too early to say
    assert method.end_epoch(1, is_warm_up=False)["lost_classes"] == 2
    assert method.estimator.label_floors(torch.tensor([0, 1, 2])).tolist() == pytest.approx(
        [0.6, 0, 0.6]
    )
