"""How `mend` uses a prescreen, against hand-computed numbers; C = 3."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boxmend.methods.equations import NoiseModel, PrescreenResult, symmetric_transition
from boxmend.methods.noise_estimator import ESTIMATOR
from boxmend.methods.table import BoxFeatures, Mend, MendSettings, Rates
from tests.methods.method_batches import (
    LATER,
    NOTHING,
    WARM_UP,
    TableScorer,
    one_image,
    rois_of,
    table,
)

NUMBER = 4000
BOX = [10.0, 10, 30, 30]
FIRST = [0.5, 0.3, 0.1, 0.1]  # over the foreground 0.6 0.2 0.2
LABELS_ONLY = Rates(box=0.0)


def make_prescreen(sure: float = 0.9, surest: float = 0.99) -> tuple[Tensor, PrescreenResult]:
    """Make labels of which three of ten are wrong, and a prescreen with calibrated probabilities.

    The probability of its class is `surest` for every fourth row and `sure` for the others; the
    other classes share the rest.
    """
    rows, generator = torch.arange(NUMBER), torch.Generator().manual_seed(0)
    right, shift = rows % 3, 1 + rows // 3 % 2
    labels = torch.where(torch.rand(NUMBER, generator=generator) < 0.3, right + shift, right) % 3
    chance = torch.where(rows % 4 == 1, surest, sure)
    is_missed = torch.rand(NUMBER, generator=generator) > chance
    is_missed[0] = False
    seen_labels = torch.where(is_missed, right + 1 + rows // 7 % 2, right) % 3
    p = ((1 - chance) / 2)[:, None].repeat(1, 3).scatter(1, seen_labels[:, None], chance[:, None])
    model = NoiseModel(0.3, 1.0, symmetric_transition(0.3, 3), is_full=False)
    return labels, PrescreenResult(p, model, 0.01)


def make_prescreened(
    rates: Rates = LABELS_ONLY, *, sure: float = 0.9, surest: float = 0.99
) -> Mend:
    method = Mend(NUMBER, 3, MendSettings(), rates)
    labels, look = make_prescreen(sure, surest)
    method.estimator.prescreen(torch.arange(NUMBER), labels, look)
    return method


def test_warm_up_trains_on_the_posterior_of_the_prescreen() -> None:
    # p = 0.9 0.05 0.05 of row 0, y = 1: 0.9 * 0.15, 0.05 * 0.7, 0.05 * 0.15 over 0.1775
    method = make_prescreened()
    outcome = method.refine(
        one_image([BOX], [1], rows=[0]), NOTHING, TableScorer(table([FIRST])), WARM_UP
    )
    expected = torch.tensor([0, 0.135, 0.035, 0.0075]) / 0.1775
    assert outcome.roi.soft is not None
    torch.testing.assert_close(outcome.roi.soft[0, 0], expected)
    logits, rois = torch.zeros(1, 1, 4), rois_of([1], [True])
    assert method.class_targets(logits, rois, outcome.roi, WARM_UP) is None


def test_after_warm_up_both_kinds_of_evidence_count() -> None:
    # 0.6 * sqrt(0.9) = 0.5692, 0.2 * sqrt(0.05) = 0.04472 twice; over 0.65864: 0.8642 0.0679 0.0679
    # y = 1: 0.8642 * 0.15, 0.0679 * 0.7, 0.0679 * 0.15 over 0.187345
    outcome = make_prescreened().refine(
        one_image([BOX], [1], rows=[0]), NOTHING, TableScorer(table([FIRST])), LATER
    )
    assert outcome.roi.soft is not None
    expected = torch.tensor([0, 0.69193, 0.25370, 0.05437])
    torch.testing.assert_close(outcome.roi.soft[0, 0], expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(outcome.loss[0, 0], -torch.tensor(0.0679).log(), atol=1e-3, rtol=0)


def test_the_rate_of_the_prescreen_is_reported_without_correction() -> None:
    method = make_prescreened()
    assert method.estimator.rate == 0.3
    annotations = one_image([BOX] * 4, [0, 1, 2, 0], rows=[0, 1, 2, 3])
    method.refine(annotations, NOTHING, TableScorer(table([FIRST] * 4)), WARM_UP)
    figures = method.end_epoch(0, is_warm_up=False)
    assert figures["label_noise"] == 0.3  # no correction for memorised labels
    assert figures["label_noise_low"] < 0.3 < figures["label_noise_high"]
    torch.testing.assert_close(method.estimator.state["transition"], symmetric_transition(0.3, 3))


def test_a_class_whose_label_many_others_carry_is_not_lost() -> None:
    # eight of ten are persons, and 40 % of each class are called by the name of the next
    rows, generator = torch.arange(NUMBER), torch.Generator().manual_seed(0)
    right = torch.tensor([0] * 8 + [1, 2])[rows % 10]
    labels = torch.where(torch.rand(NUMBER, generator=generator) < 0.4, right + 1, right) % 3
    p = torch.full((NUMBER, 3), 0.02).scatter(1, right[:, None], 0.96)
    to_the_next = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]])
    look = PrescreenResult(p, NoiseModel(0.4, 1.0, to_the_next, is_full=True), 0.01)
    is_lost = []
    for is_looked_at in (True, False):
        method = Mend(NUMBER, 3, MendSettings(), LABELS_ONLY)
        if is_looked_at:
            method.estimator.prescreen(rows, labels, look)
        state = method.state_dict()
        state["memory"][:-1], state["visits"][:-1], state["labels"][:-1] = p, 3, labels
        method.load_state_dict(state)
        method.end_epoch(1, is_warm_up=False)
        is_lost.append(method.estimator.state["lost"].tolist())
    assert is_lost == [[False] * 3, [False, True, False]]  # alone, the detector is not believed


def test_a_known_rate_is_kept() -> None:
    method = make_prescreened(Rates(label=0.2, box=0.0))
    assert method.estimator.rate == 0.2
    assert "label_noise_low" not in method.estimator.figures()


@pytest.mark.parametrize(
    ("sure", "surest", "is_adopted"),
    [
        (0.9, 0.99, True),
        (0.5, 0.6, False),  # the rate could be anything
        (0.34, 0.999, False),  # the rate is known, but not which labels are wrong
    ],
)
def test_an_uninformative_prescreen_is_ignored(
    sure: float, surest: float, is_adopted: bool
) -> None:
    method = make_prescreened(sure=sure, surest=surest)
    assert (method.estimator.prior is not None) == is_adopted
    outcome = method.refine(
        one_image([BOX], [1], rows=[0]), NOTHING, TableScorer(table([FIRST])), WARM_UP
    )
    assert (outcome.roi.soft is not None) == is_adopted


def test_labels_of_classes_that_the_prescreen_loses_are_trusted_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The detector predicts class 0 for class 2: q(y) of a lost class is at least 1 - R."""
    monkeypatch.setattr(
        "boxmend.methods.noise_estimator.ESTIMATOR", replace(ESTIMATOR, prescreen_max_interval=1.0)
    )
    labels, look = make_prescreen()
    blind = look.probabilities + look.probabilities[:, 2:] * torch.tensor([1.0, 0, -1])
    method = Mend(NUMBER, 3, MendSettings(), LABELS_ONLY)
    method.estimator.prescreen(torch.arange(NUMBER), labels, look._replace(probabilities=blind))
    lost = [False, False, True]
    assert method.estimator.state["lost"].tolist() == lost
    rows = list(range(60))
    annotations = one_image([BOX] * 60, [int(labels[row]) for row in rows], rows)
    outcome = method.refine(annotations, NOTHING, TableScorer(table([FIRST] * 60)), WARM_UP)
    assert outcome.roi.soft is not None
    raised = outcome.roi.soft[0, annotations.labels[0] == 2, 3]
    torch.testing.assert_close(raised, torch.full_like(raised, 0.7))
    method.end_epoch(0, is_warm_up=False)
    assert (
        method.estimator.state["lost"].tolist() == lost
    )  # also after an epoch that is early otherwise


def test_annotations_without_a_prescreen_are_judged_by_the_detector() -> None:
    """Row 0 has a prescreen; for row 1, the p of the detector is the only evidence."""
    method = Mend(2, 3, MendSettings(), LABELS_ONLY)
    labels, look = make_prescreen()
    method.estimator.prescreen(torch.zeros(NUMBER, dtype=torch.int64), labels, look)
    prior = method.estimator.prior_for(one_image([BOX, BOX], [0, 0], rows=[1, -1]))
    assert prior is not None
    torch.testing.assert_close(prior, torch.full((1, 2, 3), 1 / 3))


def test_the_prescreen_is_part_of_the_state() -> None:
    old, new = make_prescreened(), Mend(NUMBER, 3, MendSettings(), LABELS_ONLY)
    new.load_state_dict(old.state_dict())
    assert new.estimator.prior is not None
    assert old.estimator.prior is not None
    assert torch.equal(new.estimator.prior, old.estimator.prior)
    assert new.estimator.rate == 0.3
    kept = new.estimator.prior
    new.load_state_dict(old.state_dict())
    assert new.estimator.prior is kept  # a recorded step has addresses


@pytest.mark.parametrize(
    ("number", "rates", "first_look", "wants"),
    [
        (500, Rates(), 0.5, True),
        (500, Rates(label=0.4), 0.5, True),
        (500, Rates(label=0.0), 0.5, False),
        (500, Rates(), 0.0, False),
        (499, Rates(), 0.5, False),
    ],
)
def test_a_high_noise_rate_requests_a_prescreen(
    number: int, rates: Rates, first_look: float, wants: bool
) -> None:
    assert (
        Mend(number, 3, MendSettings(prescreen_weight=first_look), rates).wants_prescreen == wants
    )


@pytest.mark.parametrize("number", [NUMBER, 499])
def test_a_prescreen_of_features_finds_most_wrong_labels(number: int) -> None:
    """Three clusters, three of ten labels wrong: the figures and the prior show it."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.randint(3, (NUMBER,), generator=generator)
    is_wrong = torch.rand(NUMBER, generator=generator) < 0.3
    shift = torch.randint(1, 3, (NUMBER,), generator=generator)
    labels = torch.where(is_wrong, (truth + shift) % 3, truth)
    features = torch.eye(3)[truth] + 0.3 * torch.rand(NUMBER, 3, generator=generator)
    method = Mend(NUMBER, 3, MendSettings(), LABELS_ONLY)
    rows = torch.arange(NUMBER).flip(0)
    columns = (features, labels, torch.arange(NUMBER) % 5, rows)
    prescreened = method.prescreen(BoxFeatures(*(column[:number] for column in columns)))
    if number < NUMBER:
        assert not prescreened
        assert method.estimator.prior is None
        return
    assert prescreened["label_noise"] == pytest.approx(0.3, abs=0.04)
    assert method.estimator.prior is not None
    assert torch.equal(method.estimator.prior[:-1].argmax(1).flip(0), truth)
