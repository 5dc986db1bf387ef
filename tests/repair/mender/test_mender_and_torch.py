"""The equations of `mend` exist in NumPy, for a Mender, and in torch, for `train`: as one."""

import math

import numpy as np
import pytest
import torch

from boxmend.auditing.pairs import Pairs
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows, Singles
from boxmend.methods import estimation
from boxmend.methods.equations import box_noise, evidence, voting
from boxmend.methods.equations import label_noise as torch_label_noise
from boxmend.repair.mender import box_votes, label_noise, memory, posteriors

NUMBER, NUM_LABELS = 600, 6


def draw_evidence(rate: float, seed: int = 0) -> tuple[Singles, Rows]:
    """Evidence of a good detector, and labels with symmetric noise."""
    random = np.random.default_rng(seed)
    truth = random.integers(NUM_LABELS, size=NUMBER)
    logits = random.normal(0, 1, (NUMBER, NUM_LABELS))
    logits[np.arange(NUMBER), truth] += 2.5
    p = posteriors.softmax(logits).astype(np.float32)
    wrong = random.random(NUMBER) < rate
    others = (truth + random.integers(1, NUM_LABELS, size=NUMBER)) % NUM_LABELS
    return p, np.where(wrong, others, truth)


def draw_boxes(seed: int = 0) -> tuple[Floats, Floats]:
    """Annotated and voted boxes in an image of 640 x 480."""
    random = np.random.default_rng(seed)
    low = random.random((NUMBER, 2)) * (500, 340)
    boxes = np.concatenate([low, low + random.uniform(20, 140, (NUMBER, 2))], axis=1)
    boxes[:80, 0], boxes[80:160, 3] = 0.0, 480.0
    return boxes, boxes + random.normal(0, 15, boxes.shape)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_posteriors_and_judgements_are_the_same(tau: float) -> None:
    p, labels = draw_evidence(0.3)
    transition = label_noise.symmetric_transition(0.3, NUM_LABELS)
    ours = posteriors.posterior(p, labels, transition, tau)
    theirs = evidence.posterior(
        torch.tensor(p), torch.tensor(labels), torch.tensor(transition).float(), tau
    )
    assert ours == pytest.approx(theirs.numpy(), abs=1e-5)
    floors = np.where(labels < 2, 0.7, 0.0)
    raised = evidence.raise_to_floor(theirs, torch.tensor(labels), torch.tensor(floors))
    assert posteriors.raise_to_floor(ours, labels, floors) == pytest.approx(
        raised.numpy(), abs=1e-5
    )
    judged = evidence.posterior_judgements(
        torch.tensor(ours), torch.tensor(labels), torch.ones(NUMBER, dtype=torch.bool)
    )
    assert posteriors.judge_posteriors(ours, labels)[1].tolist() == judged.tolist()


def test_two_sources_of_evidence_are_combined_alike() -> None:
    p, _ = draw_evidence(0.3)
    others, _ = draw_evidence(0.3, seed=1)
    theirs = evidence.combine_evidence(torch.tensor(p), torch.tensor(others), 0.5)
    assert posteriors.combine_evidence(p, others, 1.0, 0.5) == pytest.approx(
        theirs.numpy(), abs=1e-6
    )


def test_the_weights_of_the_memory_are_the_same() -> None:
    visits = np.arange(6)
    ours = memory.visit_weights(visits, 0.5)
    old, new = torch.zeros(6, 1), torch.ones(6, 1)
    theirs, _ = evidence.update_memory(
        old, torch.tensor(visits), new, torch.ones(6, dtype=torch.bool), 0.5
    )
    assert ours == pytest.approx(theirs[:, 0].numpy())


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.4])
def test_the_label_noise_is_fitted_alike(rate: float) -> None:
    p, labels = draw_evidence(rate)
    ours = label_noise.fit_label_noise(p, labels, 0.3, full=True)
    tensors = torch.tensor(p), torch.tensor(labels)
    theirs = torch_label_noise.fit_noise_model(*tensors, 0.3)
    assert ours.rate == pytest.approx(theirs.rate, abs=2e-3)
    assert ours.tau == pytest.approx(theirs.tau, rel=0.01)
    assert ours.transition == pytest.approx(theirs.transition.numpy(), abs=2e-3)
    bounds = torch_label_noise.rate_interval(*tensors, theirs.rate, theirs.tau)
    assert (ours.low, ours.high) == pytest.approx(bounds, abs=5e-3)
    known = torch_label_noise.fit_temperature(*tensors, theirs.transition)
    assert label_noise.fit_temperature(p, labels, ours.transition) == pytest.approx(known, rel=0.02)


def test_a_full_matrix_is_fitted_alike() -> None:
    p, labels = draw_evidence(0.0)
    is_wrong = (np.random.default_rng(1).random(NUMBER) < 0.4) & (labels < 3)
    labels = np.where(is_wrong, labels + 1, labels)  # pair noise of three classes
    ours = label_noise.fit_label_noise(p, labels, 0.3, full=True)
    theirs = torch_label_noise.fit_noise_model(torch.tensor(p), torch.tensor(labels), 0.3)
    assert theirs.is_full
    assert ours.transition == pytest.approx(theirs.transition.numpy(), abs=5e-3)
    assert ours.rate == pytest.approx(theirs.rate, abs=5e-3)
    simple = label_noise.fit_label_noise(p, labels, 0.3, full=False)
    assert simple.transition == pytest.approx(
        label_noise.symmetric_transition(simple.rate, NUM_LABELS)
    )


def test_lost_classes_are_the_same() -> None:
    p, labels = draw_evidence(0.3)
    p[:, 1] *= 0.02  # the detector takes class 1 for others
    transition = label_noise.symmetric_transition(0.3, NUM_LABELS)
    q = posteriors.posterior(p / p.sum(axis=1, keepdims=True), labels, transition, 1.0)
    lost = label_noise.find_lost_classes(q.mean(axis=0, dtype=np.float64), labels, transition)
    theirs = estimation.find_lost_classes(
        torch.tensor(q), torch.tensor(labels), torch.tensor(transition)
    )
    assert lost.tolist() == np.flatnonzero(theirs.numpy()).tolist() == [1]


def test_votes_are_the_same() -> None:
    random = np.random.default_rng(0)
    annotated, _ = draw_boxes()
    annotated, voters_each = annotated[:50], 9
    shifts = random.normal(0, 12, (50, voters_each, 4))
    voters, scores = annotated[:, None] + shifts, random.random((50, voters_each))
    weights = voting.vote_weights(
        torch.tensor(annotated)[None], torch.tensor(voters)[None], torch.tensor(scores)[None]
    )
    theirs = voting.voted_boxes(
        torch.tensor(annotated)[None], torch.tensor(voters)[None], weights, weights > 0, 0.0
    )[0].numpy()
    iou = compute_iou(annotated[:, None], voters).reshape(-1)
    first = np.repeat(np.arange(50), voters_each)
    near = np.flatnonzero(iou > box_votes.VOTES.min_iou)
    pairs = Pairs(first[near], near, iou[near])
    ours = box_votes.vote_boxes(
        50, pairs, scores.reshape(-1)[near], np.ones(len(near)), voters.reshape(-1, 4)
    )
    has_vote = ours.counts > 0
    assert has_vote.sum() > 45
    assert ours.boxes[has_vote] == pytest.approx(theirs[has_vote])


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
def test_expected_edges_are_the_same(noise: float) -> None:
    annotated, voted = draw_boxes()
    errors = np.linspace(0.02, 0.2, NUMBER)
    theirs = np.stack(
        [
            box_noise.expected_boxes(
                torch.tensor(annotated[k]), torch.tensor(voted[k]), noise, float(errors[k])
            ).numpy()
            for k in range(0, NUMBER, 20)
        ]
    )
    ours = box_votes.expected_boxes(annotated, voted, noise, errors)
    assert ours[::20] == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("noise", [0.1, 0.4])
def test_edges_at_the_border_are_treated_alike(noise: float) -> None:
    annotated, voted = draw_boxes()
    sizes = np.tile([640.0, 480.0], (NUMBER, 1))
    tensors = torch.tensor(annotated)[None], torch.tensor([[480.0, 640.0]])
    counts = box_noise.count_at_border(*tensors, torch.ones(1, NUMBER, dtype=torch.bool))
    share = box_votes.choose_hold_share(annotated, sizes, noise)
    assert share == box_noise.border_hold_share(counts, noise)
    theirs = box_noise.hold_at_border(torch.tensor(voted)[None], *tensors, 0.5)[0]
    assert box_votes.hold_at_border(voted, annotated, sizes, 0.5) == pytest.approx(theirs.numpy())


def test_constants_of_both_are_the_same() -> None:
    fit, torch_fit = label_noise.FIT, torch_label_noise.LABEL_NOISE
    shared = (
        *("max_rate", "tau_range", "prior_annotations", "prior_annotations_per_class"),
        *("num_alternations", "em_rounds_per_alternation", "min_entry", "interval_drop"),
    )
    assert [getattr(fit, name) for name in shared] == [getattr(torch_fit, name) for name in shared]
    votes, torch_boxes = box_votes.VOTES, box_noise.BOX_NOISE
    for name in ("narrow_share", "stray_density", "min_noise_sides", "at_border_pixels"):
        assert getattr(votes, name) == getattr(torch_boxes, name)
    assert math.isclose(label_noise.LOST.max_share, estimation.ESTIMATION.lost_class_max_share)
