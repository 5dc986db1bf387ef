"""The estimates of NoiseEstimator after each epoch: when they start, their bounds, their report."""

from typing import Any

import pytest
import torch

from boxmend.errors import UsageError
from boxmend.methods import votes
from boxmend.methods.equations import (
    NoiseModel,
    PrescreenResult,
    rate_interval,
    symmetric_transition,
)
from boxmend.methods.equations.box_noise import BOX_NOISE, NUM_BINS
from boxmend.methods.estimation import Estimate, find_lost_classes, rate_bounds
from boxmend.methods.noise_estimator import NoiseEstimator
from boxmend.methods.table import Mend, MendSettings, Rates
from tests.methods.method_batches import (
    LATER,
    NOTHING,
    WARM_UP,
    TableScorer,
    WaveScorer,
    noisy_evidence,
    one_image,
    random_batch,
    rois_of,
    table,
)

pytestmark = pytest.mark.usefixtures("one_thread")

BOX = [10.0, 10, 30, 30]


def make_estimator(
    state: dict[str, Any] | None = None, num_annotations: int = 4, num_labels: int = 4
) -> NoiseEstimator:
    """Return an estimator without known rates, with some of its state set."""
    watch = NoiseEstimator(num_annotations, num_labels, MendSettings(), Rates())
    watch.load_state_dict({**watch.state_dict(), **(state or {})})
    return watch


def interval(low: float, high: float) -> torch.Tensor:
    return torch.tensor([low, high], dtype=torch.float64)


def test_an_eighth_of_the_errors_counts_as_memorised_and_at_most_a_fifth() -> None:
    # 0.33 / 0.88 and 0.36 / 0.8
    figures = Estimate(0.33, 0.3, 0.36).figures("x")
    assert figures == {"x": pytest.approx(0.375), "x_low": 0.3, "x_high": pytest.approx(0.45)}


@pytest.mark.parametrize(("measured", "known"), [(0.0175, 0.0), (0.0177, 0.0177 / 0.88)])
@pytest.mark.parametrize("name", ["label", "box"])
def test_an_estimate_below_two_percent_counts_as_no_noise(
    name: str, measured: float, known: float
) -> None:
    rate = {"label": "rate", "box": "box_noise"}[name]
    watch = make_estimator({rate: measured, f"{name}_bounds": interval(0.01, 0.03)})
    rates = watch.known_rates()._asdict()
    assert rates[name] == pytest.approx(known)
    assert rates["box" if name == "label" else "label"] is None  # not measured


@pytest.mark.parametrize(
    ("epoch", "is_warm_up", "is_firm"), [(1, False, False), (2, False, True), (2, True, False)]
)
def test_estimates_are_used_from_the_third_epoch_unless_it_is_warm_up(
    epoch: int, is_warm_up: bool, is_firm: bool
) -> None:
    evidence, labels = noisy_evidence(0.2, count=600)
    bounds = {f"{name}_bounds": interval(0.45, 0.55) for name in ("label", "box")}
    watch = make_estimator({"rate": 0.5, "box_noise": 0.5, **bounds}, len(labels))
    watch.state["memory"][:-1], watch.state["labels"][:-1] = evidence, labels
    watch.state["visits"][:-1] = 1
    watch.end_epoch(epoch, is_warm_up)  # labels look less noisy now, and no box was compared
    assert (watch.rate == 0.5) == is_firm
    assert (watch.box.noise == 0.5) == is_firm
    for name in ("label", "box"):
        assert (watch.state[f"{name}_bounds"].tolist() == [0.45, 0.55]) == is_firm


def test_a_higher_estimate_replaces_the_old_one_with_its_bounds() -> None:
    evidence, labels = noisy_evidence(0.4, count=600)
    watch = make_estimator({"rate": 0.2, "label_bounds": interval(0.15, 0.25)}, len(labels))
    watch.state["memory"][:-1], watch.state["labels"][:-1] = evidence, labels
    watch.state["visits"][:-1] = 1
    watch.end_epoch(5, False)
    low, high = watch.state["label_bounds"].tolist()
    assert 0.3 < low < watch.rate < high < 0.5


@pytest.mark.parametrize(
    ("width", "chance", "rate", "is_adopted"),
    [
        # q = 0.7 p / (0.7 p + 0.15 (1 - p)); at most 0.6 * 0.3 = 0.18 may stay wrong
        (0.099, 0.50, 0.3, True),  # 0.35 / 0.425: 0.1765 wrong
        (0.099, 0.48, 0.3, False),  # 0.336 / 0.414: 0.188 wrong
        (0.101, 0.50, 0.3, False),  # bounds of the rate are too wide
        # q = 0.99 p / (0.99 p + 0.005 (1 - p)) = 0.396 / 0.399: 0.0075 wrong, above 0.006
        (0.099, 0.40, 0.01, True),  # but next to no label is
    ],
)
def test_a_prescreen_counts_if_it_is_certain_enough(
    monkeypatch: pytest.MonkeyPatch, width: float, chance: float, rate: float, is_adopted: bool
) -> None:
    monkeypatch.setattr(
        "boxmend.methods.estimation.rate_bounds", lambda *_: (rate - 0.005, rate - 0.005 + width)
    )
    labels = torch.arange(30) % 3
    p = torch.full((30, 3), (1 - chance) / 2).scatter(1, labels[:, None], chance)
    look = PrescreenResult(p, NoiseModel(rate, 1.0, symmetric_transition(rate, 3), False), 0.01)
    watch = make_estimator(None, 30, 3)
    figures = watch.prescreen(torch.arange(30), labels, look)
    assert bool(figures) == (watch.prior is not None) == is_adopted


@pytest.mark.parametrize(("share", "is_lost"), [(0.16, True), (0.17, False)])
def test_a_class_is_lost_below_half_of_what_its_labels_imply(share: float, is_lost: bool) -> None:
    # a third of the labels each, so each class has a third, and half of it is 0.1667
    posteriors = torch.tensor([share, 0.5, 0.5 - share]).expand(300, 3)
    lost = find_lost_classes(posteriors, torch.arange(300) % 3, symmetric_transition(0.4, 3))
    assert lost.tolist() == [is_lost, False, False]


@pytest.mark.parametrize(("number", "is_lost"), [(27, False), (33, True)])
def test_a_class_of_fewer_than_ten_annotations_is_not_lost(number: int, is_lost: bool) -> None:
    posteriors = torch.tensor([0.1, 0.5, 0.4]).expand(number, 3)
    lost = find_lost_classes(posteriors, torch.arange(number) % 3, symmetric_transition(0.4, 3))
    assert lost.tolist() == [is_lost, False, False]


def test_the_bounds_of_a_full_matrix_are_as_wide_as_those_of_one_rate_and_around_its_own() -> None:
    evidence, labels = noisy_evidence(0.3, count=600)
    simple = NoiseModel(0.3, 1.0, symmetric_transition(0.3, 4), is_full=False)
    low, high = rate_bounds(evidence, labels, simple)
    assert (low, high) == rate_interval(evidence, labels, 0.3, 1.0)
    full = simple._replace(rate=0.5, is_full=True)
    moved_low, moved_high = rate_bounds(evidence, labels, full)
    assert moved_high - moved_low == pytest.approx(high - low, abs=0.01)
    assert moved_low < 0.5 < moved_high
    assert rate_bounds(evidence, labels, full._replace(rate=0.99))[1] == 1.0
    assert rate_bounds(evidence, labels, full._replace(rate=0.01))[0] == 0.0


def mending(keep: float, noise: float, error: float) -> dict[str, float]:
    """Return how boxes are repaired after these estimates."""
    method = Mend(4, 3)
    estimate = {"box_noise": noise, "error": error, "box_bounds": interval(noise / 2, 0.6)}
    method.load_state_dict({**method.state_dict(), **estimate, "keep": torch.tensor(keep)})
    state = method.state_dict()
    return {name: float(state[name]) for name in ("keep", "alpha", "noise", "vote_error")}


def test_edges_are_expected_by_the_noise_and_the_error_that_were_measured() -> None:
    result = mending(keep=0.5, noise=0.264, error=0.09)
    # the reported rate is 0.264 / 0.88 = 0.3
    assert result == pytest.approx({"keep": 0.5, "alpha": 0.3, "noise": 0.3, "vote_error": 0.09})
    assert mending(keep=0.5, noise=0.264, error=0.0)["vote_error"] == pytest.approx(
        BOX_NOISE.typical_error_sides
    )


def test_where_repair_is_off_there_is_no_noise_to_undo() -> None:
    result = mending(keep=1.0, noise=0.06, error=0.1)
    assert result == pytest.approx({"keep": 1, "alpha": 0, "noise": 0, "vote_error": 0.1})


def test_labels_of_a_lost_class_have_at_least_the_rate_of_right_labels_in_warm_up() -> None:
    # s T = 0.64 * 0.15, 0.08 * 0.7 and 0.08 * 0.15: q(1) is 0.34, but 1 - 0.3 for a lost class;
    # the others share 0.3 as 0.096 to 0.012
    second = [0.2, 0.64, 0.08, 0.08]
    method = Mend(4, 3, MendSettings(), Rates(box=0.0))
    lost = torch.tensor([False, True, False])
    method.load_state_dict({**method.state_dict(), "lost": lost})
    method.refine(one_image([BOX], [0]), NOTHING, TableScorer(table([second])), WARM_UP)
    logits = torch.tensor([[second, second]]).log()
    rois = rois_of([1, 0], [True, False])
    targets = method.class_targets(logits, rois, None, WARM_UP)  # type: ignore[arg-type]
    expected = [[0, 0.3 * 0.096 / 0.108, 0.7, 0.3 * 0.012 / 0.108], [1, 0, 0, 0]]
    torch.testing.assert_close(targets, torch.tensor([expected]))


@pytest.mark.parametrize("is_warm_up", [True, False])
def test_an_estimate_falls_only_in_warm_up(is_warm_up: bool) -> None:
    evidence, labels = noisy_evidence(0.2, count=600)
    method = Mend(len(labels), 4, rates=Rates(box=0.0))
    state = {**method.state_dict(), "rate": 0.5}
    state["memory"][:-1], state["visits"][:-1], state["labels"][:-1] = evidence, 1, labels
    method.load_state_dict(state)
    method.end_epoch(2, is_warm_up=is_warm_up)
    assert (method.estimator.rate == 0.5) == (not is_warm_up)


def test_counts_of_an_epoch_are_reset_after_it() -> None:
    counted = {"residuals": torch.ones(NUM_BINS), "pull": torch.tensor([1.0, 2.0])}
    watch = make_estimator(counted)
    watch.end_epoch(0, is_warm_up=False)
    assert not any(watch.state[name].any() for name in counted)


def test_an_annotation_without_a_row_does_not_change_the_memory() -> None:
    method = Mend(4, 3, MendSettings(), Rates(box=0.0))
    annotations = one_image([BOX, BOX], [0, 1], rows=[2, -1])
    chances = table([[0.0, 0.6, 0.2, 0.2], [0.0, 0.2, 0.6, 0.2]])
    method.refine(annotations, NOTHING, TableScorer(chances), WARM_UP)
    state = method.state_dict()
    assert state["visits"].tolist() == [0, 0, 1, 0, 0]
    assert state["memory"].sum(1).tolist() == pytest.approx([0, 0, 1, 0, 0])


def test_a_state_with_another_queue_is_refused() -> None:
    state = Mend(4, 3, MendSettings(queue_length=8)).state_dict()
    with pytest.raises(UsageError, match=r"a queue of 8 losses, but mend\.queue_length is 5"):
        Mend(4, 3, MendSettings(queue_length=5)).load_state_dict(state)


def test_steps_change_the_state_in_place() -> None:
    """A recorded step keeps memory addresses."""
    annotations, proposals = random_batch(4)
    method = Mend(15, 3)
    places = [(state, dict(state)) for state in (method.estimator.state, method._state)]
    for progress in (WARM_UP, LATER):
        method.refine(annotations, proposals, WaveScorer(), progress)
        method.end_epoch(progress.epoch, is_warm_up=False)
    for state, before in places:
        assert [name for name, tensor in state.items() if tensor is not before[name]] == []


@pytest.mark.parametrize("row", [0, 15])  # all edges to one side, or to the other
def test_boxes_are_moved_by_a_sixth_of_their_sides_to_measure_the_pull(row: int) -> None:
    # 60 x 30 moves by 10 and 5, where the vote, a single box, stays: 2 (10^2 + 5^2) in all
    box = [20.0, 20, 80, 50]
    annotations = one_image([box], [0], rows=[row])
    boxes = torch.tensor([[[box, box]]])
    scores, both = torch.full((1, 1, 2), 0.9), torch.ones(1, 1, 2).bool()
    agreement = votes.measure_agreement(
        annotations, votes.Voters(boxes, scores, scores, both), 0.3, 0.6, 0.1
    )
    assert agreement.pull.tolist() == [0, 250]
    assert agreement.residuals.nonzero().tolist() == [[0]]
    assert agreement.residuals[0] == 4
