"""The prescreen on drawn features with known classes, and its parts by hand-computed numbers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boxmend.methods.equations import (
    Belief,
    NoiseModel,
    PrescreenResult,
    posterior,
    prescreen_labels,
)
from boxmend.methods.equations.prescreen import PRESCREEN, anchored_transition, corrected_loss

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_LABELS = 6
FIXED = Belief(known_rate=0.2, decays=(0.03,))  # neither T nor the decay follow the labels


def draw_features(
    count: int, rate: float = 0.0, *, pairs: bool = False, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters in 12 dimensions: features, true classes, and labels of which a share is wrong.

    With `pairs` class c is always labelled c + 1, else any other class.
    """
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(NUM_LABELS, 12, generator=generator)
    truth = torch.randint(0, NUM_LABELS, (count,), generator=generator)
    features = centers[truth] + spread * torch.randn(count, 12, generator=generator)
    is_wrong = torch.rand(count, generator=generator) < rate
    moves = torch.randint(1, NUM_LABELS, (count,), generator=generator)
    moved = (truth + (torch.ones_like(moves) if pairs else moves)) % NUM_LABELS
    return features, truth, torch.where(is_wrong, moved, truth)


def folds(count: int, number: int = 3) -> Tensor:
    return torch.arange(count) % number


def raw(look: PrescreenResult) -> Tensor:
    """Return the probabilities of the classifiers without tau."""
    logs = look.probabilities.double().log()
    return (logs / look.model.tau).softmax(-1)


def wrong_share(look: PrescreenResult, labels: Tensor, truth: Tensor) -> float:
    q = posterior(look.probabilities, labels, look.model.transition)
    return float((q.argmax(1) != truth).double().mean())


def test_the_corrected_loss_equals_the_hand_computed_value() -> None:
    logits = torch.tensor([[0.8, 0.2], [0.5, 0.5]]).log() + 3  # a constant does not matter
    transition = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    # 0.8 * 0.9 + 0.2 * 0.3 = 0.78;  0.5 * 0.1 + 0.5 * 0.7 = 0.4
    loss = corrected_loss(logits, torch.tensor([0, 1]), transition)
    assert loss.item() == pytest.approx(-(math.log(0.78) + math.log(0.4)) / 2)


def test_a_label_that_the_matrix_calls_impossible_has_a_finite_loss() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    loss = corrected_loss(logits, torch.tensor([1]), torch.tensor([[1.0, 0], [1, 0]]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_the_labels_of_the_surest_annotations_give_the_matrix() -> None:
    p = torch.tensor([[0.9, 0.1]] * 5 + [[0.6, 0.4]] * 5 + [[0.2, 0.8]] * 5)
    labels = torch.tensor([0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0])
    model = NoiseModel(0.5, 1.0, torch.tensor([[0.5, 0.5], [0.5, 0.5]]), is_full=False)
    half = anchored_transition(p, labels, model._replace(transition=torch.eye(2)))
    # five anchors a class: 3 and 2, 1 and 4; two more as the model has it
    torch.testing.assert_close(half, torch.tensor([[5 / 7, 2 / 7], [1 / 7, 6 / 7]]))
    tilted = model._replace(transition=torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    expected = torch.tensor([[4.5 / 7, 2.5 / 7], [1.5 / 7, 5.5 / 7]])
    torch.testing.assert_close(anchored_transition(p, labels, tilted), expected)


def test_the_prediction_for_an_annotation_does_not_depend_on_its_own_label() -> None:
    features, _, labels = draw_features(300, 0.2)
    first = folds(300) == 0
    moved = torch.where(first, (labels + 1) % NUM_LABELS, labels)
    before = raw(prescreen_labels(features, labels, folds(300), NUM_LABELS, FIXED))
    after = raw(prescreen_labels(features, moved, folds(300), NUM_LABELS, FIXED))
    torch.testing.assert_close(after[first], before[first], atol=1e-5, rtol=0)
    assert (after - before)[~first].abs().amax(1).min() > 1e-3  # but they with_limits the others


def test_the_probabilities_are_distributions_and_single() -> None:
    features, _, labels = draw_features(200, 0.2)
    look = prescreen_labels(features.half(), labels.int(), folds(200), NUM_LABELS)
    assert look.probabilities.shape == (200, NUM_LABELS)
    assert look.probabilities.dtype == torch.float32
    torch.testing.assert_close(look.probabilities.sum(1), torch.ones(200))
    torch.testing.assert_close(look.model.transition.sum(1), torch.ones(NUM_LABELS))


def test_a_permutation_of_the_classes_only_permutes_the_result() -> None:
    features, _, labels = draw_features(400, 0.2)
    names = torch.tensor([3, 0, 5, 1, 2, 4])
    before = prescreen_labels(features, labels, folds(400), NUM_LABELS)
    after = prescreen_labels(features, names[labels], folds(400), NUM_LABELS)
    torch.testing.assert_close(
        after.probabilities[:, names], before.probabilities, atol=0.02, rtol=0
    )
    assert after.model.rate == pytest.approx(before.model.rate, abs=0.01)
    assert after.decay == before.decay


def test_the_prescreen_is_deterministic_and_changes_no_argument() -> None:
    features, _, labels = draw_features(200, 0.2)
    copies = features.clone(), labels.clone()
    one = prescreen_labels(features, labels, folds(200), NUM_LABELS)
    with torch.no_grad():
        two = prescreen_labels(features, labels, folds(200), NUM_LABELS)
    assert torch.equal(one.probabilities, two.probabilities)
    assert (one.model.rate, one.model.tau, one.decay) == (two.model.rate, two.model.tau, two.decay)
    assert not one.probabilities.requires_grad
    assert torch.equal(features, copies[0])
    assert torch.equal(labels, copies[1])


def test_forty_percent_of_wrong_labels_are_recognised() -> None:
    features, truth, labels = draw_features(3000, 0.4, spread=0.7)
    look = prescreen_labels(features, labels, folds(3000, 5), NUM_LABELS)
    assert look.model.rate == pytest.approx(0.4, abs=0.03)
    assert not look.model.is_full
    assert wrong_share(look, labels, truth) < 0.08
    chances = look.probabilities.gather(1, truth[:, None])
    assert chances.mean() > 0.8  # and tau made p as sure as it should be


def test_clean_labels_are_estimated_to_be_clean() -> None:
    features, truth, labels = draw_features(1500)
    look = prescreen_labels(features, labels, folds(1500), NUM_LABELS)
    assert look.model.rate < 0.02
    assert wrong_share(look, labels, truth) < 0.002


def test_clean_labels_of_similar_classes_are_kept() -> None:
    features, truth, labels = draw_features(1500, spread=3.0)
    look = prescreen_labels(features, labels, folds(1500), NUM_LABELS)
    assert (look.probabilities.argmax(1) == truth).float().mean() < 0.7
    assert look.model.rate < 0.05
    assert wrong_share(look, labels, truth) < 0.01


def test_noise_that_follows_pairs_is_not_explained_away() -> None:
    features, truth, labels = draw_features(3000, 0.4, pairs=True, spread=0.7)
    look = prescreen_labels(features, labels, folds(3000, 5), NUM_LABELS)
    assert look.model.is_full
    assert look.model.rate == pytest.approx(0.4, abs=0.03)
    matrix = look.model.transition
    expected = 0.6 * torch.eye(NUM_LABELS) + 0.4 * torch.eye(NUM_LABELS).roll(1, dims=1)
    assert (matrix - expected).abs().max() < 0.08
    assert wrong_share(look, labels, truth) < 0.04


def test_a_full_matrix_is_not_fitted_if_the_setting_excludes_it() -> None:
    features, _, labels = draw_features(1000, 0.4, pairs=True, spread=0.7)
    assert prescreen_labels(features, labels, folds(1000), NUM_LABELS).model.is_full
    look = prescreen_labels(features, labels, folds(1000), NUM_LABELS, Belief(full=False))
    assert not look.model.is_full


def test_a_full_matrix_that_swaps_classes_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _, labels = draw_features(1000, 0.4, pairs=True, spread=0.7)
    monkeypatch.setattr(
        "boxmend.methods.equations.prescreen.PRESCREEN", replace(PRESCREEN, min_correct_share=0.7)
    )  # it is 0.6
    assert not prescreen_labels(features, labels, folds(1000), NUM_LABELS).model.is_full


def test_of_a_known_rate_only_tau_is_fitted() -> None:
    features, truth, labels = draw_features(1500, 0.4, spread=0.7)
    belief = Belief(known_rate=0.4)
    look = prescreen_labels(features, labels, folds(1500), NUM_LABELS, belief)
    assert look.model.rate == 0.4
    assert look.model.transition[0].tolist() == pytest.approx([0.6] + [0.08] * 5)
    assert 0.2 < look.model.tau < 9
    assert wrong_share(look, labels, truth) < 0.08
    chances = look.probabilities.gather(1, truth[:, None])
    assert chances.mean() > 0.8


def test_the_sign_of_features_matters() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(200) % 2
    features = torch.rand(200, 5, generator=generator) * (1 - 2 * labels[:, None])
    look = prescreen_labels(features, labels, folds(200), 2)
    assert (look.probabilities.argmax(1) == labels).all()


def test_the_decay_is_the_one_under_which_the_labels_left_out_are_likeliest() -> None:
    near, far = (draw_features(600, spread=spread) for spread in (0.7, 4.0))
    strong = prescreen_labels(far[0], far[2], folds(600), NUM_LABELS).decay
    weak = prescreen_labels(near[0], near[2], folds(600), NUM_LABELS).decay
    assert weak < strong == 0.1


@pytest.mark.parametrize("seed", range(5))
def test_uninformative_features_keep_the_prior(seed: int) -> None:
    _, _, labels = draw_features(400)
    noise = torch.randn(400, 12, generator=torch.Generator().manual_seed(seed))
    look = prescreen_labels(noise, labels, folds(400), NUM_LABELS)
    assert (look.probabilities - 1 / NUM_LABELS).abs().max() < 0.2
    assert look.model.rate == 0.3


def test_of_very_many_rows_some_are_fitted_and_all_are_predicted() -> None:
    count = 2 * PRESCREEN.max_train_annotations
    features, truth, labels = draw_features(count, spread=0.7)
    odd = torch.arange(count) % 2 == 1
    moved = torch.where(odd, (labels + 1) % NUM_LABELS, labels)  # every other row is skipped
    belief = Belief(known_rate=0.0, decays=(0.1,))
    halves = torch.arange(count) // 2 % 2
    look = prescreen_labels(features, moved, halves, NUM_LABELS, belief)
    assert (look.probabilities.argmax(1) == truth).float().mean() > 0.9


@pytest.mark.parametrize("known_rate", [None, 0.0, 0.4])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_annotations_give_finite_probabilities(count: int, known_rate: float | None) -> None:
    features, _, labels = draw_features(count)
    look = prescreen_labels(
        features, labels, folds(count), NUM_LABELS, Belief(known_rate=known_rate)
    )
    assert_sane(look, count, NUM_LABELS)


@pytest.mark.parametrize(
    "labels",
    [
        torch.zeros(40).long(),
        torch.tensor([0] * 39 + [5]),
        torch.arange(40) % 2,
    ],
    ids=["one class", "a class of one", "classes without annotations"],
)
@pytest.mark.parametrize("known_rate", [None, 0.0])
def test_rare_classes_give_finite_probabilities(labels: Tensor, known_rate: float | None) -> None:
    features, _, _ = draw_features(40)
    look = prescreen_labels(features, labels, folds(40), NUM_LABELS, Belief(known_rate=known_rate))
    assert_sane(look, 40, NUM_LABELS)


@pytest.mark.parametrize("value", [0.0, 1.0, 60_000.0])
def test_equal_features_give_finite_probabilities(value: float) -> None:
    labels = torch.arange(30) % 3
    look = prescreen_labels(torch.full((30, 4), value).half(), labels, folds(30, 2), 3)
    assert_sane(look, 30, 3)


def test_a_single_fold_keeps_the_prior() -> None:
    features, _, labels = draw_features(50)
    look = prescreen_labels(
        features, labels, torch.full((50,), 2), NUM_LABELS, Belief(previous=0.25)
    )
    assert torch.equal(look.probabilities, torch.full((50, NUM_LABELS), 1 / NUM_LABELS))
    assert look.model.rate == 0.25


def test_with_a_single_class_every_probability_is_one() -> None:
    look = prescreen_labels(torch.rand(8, 4), torch.zeros(8).long(), folds(8), 1, FIXED)
    assert look.probabilities.tolist() == [[1]] * 8
    assert look.model.rate == 0
    assert look.model.transition.tolist() == [[1]]


def test_no_decays_are_refused() -> None:
    features, _, labels = draw_features(20)
    with pytest.raises(ValueError, match="no decays"):
        prescreen_labels(features, labels, folds(20), NUM_LABELS, Belief(decays=()))


def assert_sane(look: PrescreenResult, count: int, num_labels: int) -> None:
    assert look.probabilities.shape == (count, num_labels)
    assert torch.isfinite(look.probabilities).all()
    torch.testing.assert_close(look.probabilities.sum(1), torch.ones(count))
    assert torch.isfinite(look.model.transition).all()
    assert 0 <= look.model.rate <= 0.95
    assert 0.1 <= look.model.tau <= 10
