"""Box noise separated from the error of the detector, and the share of the raw box."""

import math

import pytest
import torch
from torch import Tensor

from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.detector.boxes import elementwise_iou
from boxmend.methods.equations import (
    BoxNoise,
    border_hold_share,
    count_at_border,
    count_residuals,
    edge_residuals,
    expected_boxes,
    extend_past_border,
    fit_box_noise,
    hold_at_border,
    mean_noise,
    pull_sums,
    raw_box_share,
)
from boxmend.methods.equations.box_noise import (
    BOX_NOISE,
    NUM_BINS,
    border_share,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = torch.tensor([[1000, 1000]])
NAN = math.nan
TRUE = torch.tensor([300.0, 200, 500, 600])  # sides 200 and 400
SIDES = torch.tensor([200.0, 400, 200, 400])


def pairs(
    noise: float, error: float, count: int = 4000, spread: float = 0.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Annotated and predicted boxes; with `spread` the error differs from box to box."""
    generator = torch.Generator().manual_seed(seed)
    moves = noise * (2 * torch.rand(count, 4, generator=generator) - 1)
    hardness = torch.exp(spread * torch.randn(count, 1, generator=generator))
    errors = error * hardness * torch.randn(count, 4, generator=generator)
    return (TRUE + moves * SIDES)[None], (TRUE + errors * SIDES)[None]


def estimate_noise(annotated: Tensor, predicted: Tensor) -> BoxNoise:
    return fit_box_noise(count_residuals(*edge_residuals(annotated, predicted, SIZES)))


def test_residuals_are_shares_of_the_predicted_side() -> None:
    annotated = torch.tensor([[[100.0, 100, 220, 300]]])
    predicted = torch.tensor([[[110.0, 120, 190, 280]]])  # 80 x 160
    residuals, is_free = edge_residuals(annotated, predicted, SIZES)
    expected = torch.tensor([[[-10 / 80, -20 / 160, 30 / 80, 20 / 160]]])
    torch.testing.assert_close(residuals, expected)
    assert is_free.all()


def test_edges_at_the_border_of_the_image_are_not_free() -> None:
    box = torch.tensor([[[9.0, 11, 109, 111]]])  # 100 x 100: within 10 px of the left border
    _, is_free = edge_residuals(box, box, torch.tensor([[120, 200]]))  # height 120, width 200
    assert is_free.tolist() == [[[False, True, True, False]]]


def test_residuals_are_counted_by_size_without_sign() -> None:
    residuals = torch.tensor([0.004, -0.006, 0.013, -0.999, 1.0, 7.0, NAN, 0.5])
    is_counted = torch.tensor([True] * 7 + [False])
    counts = count_residuals(residuals, is_counted)
    assert counts.shape == (NUM_BINS,)
    assert {place: int(counts[place]) for place in counts.nonzero()[:, 0].tolist()} == {
        0: 2,
        1: 1,
        99: 1,
    }


def test_padding_is_not_counted() -> None:
    counts = count_residuals(torch.tensor([NAN, math.inf, 0.1]), torch.zeros(3).bool())
    assert counts.sum() == 0


# Errors of a detector have long tails; even ones without any pass for noise when they are wide.
ERRORS = [(0.03, 0.0), (0.05, 0.0), (0.03, 0.5), (0.05, 0.5), (0.075, 0.5), (0.1, 0.5)]


@pytest.mark.parametrize(("error", "spread"), ERRORS)
@pytest.mark.parametrize("noise", [0.0, 0.2, 0.4])
def test_the_noise_is_recovered(noise: float, error: float, spread: float) -> None:
    estimate = estimate_noise(*pairs(noise, error, spread=spread))
    assert estimate.noise == pytest.approx(noise, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_noise_of_a_tenth_is_recovered_if_the_detector_is_as_precise(seed: int) -> None:
    estimate = estimate_noise(*pairs(0.1, 0.05, seed=seed))
    assert estimate.noise == pytest.approx(0.1, abs=0.03)
    assert 0.4 <= raw_box_share(estimate) < 0.6


@pytest.mark.parametrize("error", [0.075, 0.1])
def test_noise_of_a_tenth_under_a_worse_detector_is_not_repaired(error: float) -> None:
    estimate = estimate_noise(*pairs(0.1, error))
    assert estimate.noise <= 0.15
    assert raw_box_share(estimate) > 0.6


@pytest.mark.parametrize(("error", "spread"), ERRORS)
@pytest.mark.parametrize("seed", range(3))
def test_clean_boxes_disable_the_repair(error: float, spread: float, seed: int) -> None:
    annotated, predicted = pairs(0, error, spread=spread, seed=seed)
    share = raw_box_share(estimate_noise(annotated, predicted))
    final = torch.lerp(predicted, annotated, share)
    assert share == 1
    assert elementwise_iou(final, TRUE).mean() >= 0.97


def test_repair_makes_noisy_boxes_better() -> None:
    annotated, predicted = pairs(0.4, 0.1)
    share = raw_box_share(estimate_noise(annotated, predicted))
    final = torch.lerp(predicted, annotated, share)
    assert share == pytest.approx(0.4)
    assert elementwise_iou(final, TRUE).mean() > elementwise_iou(annotated, TRUE).mean() + 0.2


def test_mismatched_pairs_do_not_pass_for_noise() -> None:
    annotated, predicted = pairs(0, 0.05)
    strays = predicted + 150 * torch.randn(
        predicted.shape, generator=torch.Generator().manual_seed(1)
    )
    is_stray = torch.arange(predicted.shape[1])[:, None] % 10 == 0
    assert raw_box_share(estimate_noise(annotated, torch.where(is_stray, strays, predicted))) == 1


def test_few_boxes_give_no_estimate() -> None:
    assert raw_box_share(estimate_noise(*pairs(0.4, 0.05, count=50))) == 1
    assert raw_box_share(fit_box_noise(torch.zeros(NUM_BINS))) == 1


@pytest.mark.parametrize(
    ("noise", "error", "share"),
    [
        (0.0, 0.1, 1),
        (0.0, 0.0, 1),
        (0.3, 0.1, 0.4),  # 0.01 / (0.01 + 0.03) = 0.25, but no less than 0.4
        (0.3, 0.2, 4 / 7),  # 0.04 / (0.04 + 0.03)
        (0.06, 0.1, 1),  # 0.01 / (0.01 + 0.0012) = 0.893, above 0.8: not worth it
        (0.2, 0.0, 0.4),
    ],
)
def test_the_share_weighs_by_precision(noise: float, error: float, share: float) -> None:
    assert raw_box_share(BoxNoise(noise, error)) == pytest.approx(share)


def test_more_noise_never_gives_the_raw_box_more() -> None:
    shares = [raw_box_share(BoxNoise(step / 50, 0.08)) for step in range(30)]
    assert shares == sorted(shares, reverse=True)


def test_the_pull_is_how_far_predictions_follow_shifts() -> None:
    shifts = torch.tensor([10.0, -20, 10, 10, 5])
    answers = torch.tensor([2.0, -6, 40, NAN, 5])  # a jump of 40 counts as 10, nothing as 0
    is_counted = torch.tensor([True, True, True, True, False])
    sums = pull_sums(shifts, answers, is_counted)
    # 20 + 120 + 100 + 0 over 100 + 400 + 100 + 100
    assert sums.tolist() == [240, 700]


def test_the_estimate_is_corrected_for_the_pull() -> None:
    annotated, predicted = pairs(0.3, 0.05)
    following = predicted + 0.25 * (annotated - TRUE)  # a quarter of every error is followed
    counts = count_residuals(*edge_residuals(annotated, following, SIZES))
    assert fit_box_noise(counts).noise == pytest.approx(0.225, abs=0.02)
    assert fit_box_noise(counts, torch.tensor([25.0, 100])).noise == pytest.approx(0.3, abs=0.03)


def test_a_pull_above_a_half_is_ignored() -> None:
    counts = count_residuals(*edge_residuals(*pairs(0.2, 0.05), SIZES))
    half = fit_box_noise(counts, torch.tensor([50.0, 100]))
    assert fit_box_noise(counts, torch.tensor([90.0, 100])) == half
    assert fit_box_noise(counts, torch.tensor([-9.0, 100])) == fit_box_noise(counts)
    assert fit_box_noise(counts, torch.zeros(2)) == fit_box_noise(counts)


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.4])
def test_the_bounds_hold_the_noise_about_nineteen_times_of_twenty(noise: float) -> None:
    held = 0
    for seed in range(20):
        estimate = estimate_noise(*pairs(noise, 0.05, count=1500, spread=0.5, seed=seed))
        held += estimate.low <= noise <= estimate.high
        assert estimate.low <= estimate.noise <= estimate.high
        assert estimate.high - estimate.low < 0.1  # and they say something
    assert held >= 18


def moved_by(apart: float, noise: float, error: float) -> float:
    """How far a left edge of a box of sides 100 goes to one whose edges are all `apart` away."""
    box = torch.tensor([200.0, 200, 300, 300], dtype=torch.float64)
    moved = expected_boxes(box, box + 100 * apart, noise, error) - box
    torch.testing.assert_close(moved, moved[:1].expand(4))
    return float(moved[0]) / 100


def mean_by_summing(apart: float, noise: float, error: float) -> float:
    """The mean of u in -N .. N under the density of d at `apart` - u, by the midpoint rule."""
    narrow = error / math.sqrt(
        BOX_NOISE.narrow_share + (1 - BOX_NOISE.narrow_share) * SHARED.wide_factor**2
    )
    steps = 4000
    total = weighted = 0.0
    for step in range(steps):
        u = noise * (2 * (step + 0.5) / steps - 1)
        density = BOX_NOISE.stray_density
        for share, scale in (
            (BOX_NOISE.narrow_share, narrow),
            (1 - BOX_NOISE.narrow_share, SHARED.wide_factor * narrow),
        ):
            place = (apart - u) / scale
            density += share * math.exp(-(place**2) / 2) / scale / math.sqrt(2 * math.pi)
        total, weighted = total + density, weighted + u * density
    return weighted / total


@pytest.mark.parametrize("apart", [0.0, 0.05, -0.2, 0.35, -0.6, 1.1, 2.5])
@pytest.mark.parametrize(("noise", "error"), [(0.4, 0.13), (0.2, 0.1), (0.2, 0.3), (0.05, 0.06)])
def test_edges_move_to_their_expected_positions(apart: float, noise: float, error: float) -> None:
    expected = mean_by_summing(apart, noise, error)
    assert moved_by(apart, noise, error) == pytest.approx(expected, abs=1e-5)


def test_an_exact_vote_is_followed_up_to_the_bound_of_the_noise() -> None:
    assert moved_by(0.15, 0.4, 0.001) == pytest.approx(0.15, abs=1e-3)
    assert moved_by(-0.41, 0.4, 0.01) == pytest.approx(-0.4, abs=0.01)


def test_an_uninformative_vote_changes_no_box() -> None:
    assert abs(moved_by(0.3, 0.1, 5.0)) < 1e-3
    assert moved_by(1.5, 0.4, 0.05) == pytest.approx(0, abs=1e-3)  # of another object
    assert moved_by(0.3, 0.0, 0.1) == pytest.approx(0, abs=1e-3)  # there is no noise to undo


@pytest.mark.parametrize(
    ("left", "right", "shares"),
    [(-150.0, 250.0, (-0.375, 0.375)), (20.0, 70.0, (0.4, -0.6))],
)
def test_shares_are_of_the_voted_side(
    left: float, right: float, shares: tuple[float, float]
) -> None:
    # the annotated side is 100; edges go out by 150 of 400, or in by 20 and 30 of 50
    raw, vote = torch.tensor([0.0, 0, 100, 100]), torch.tensor([left, 0, right, 100])
    moved = expected_boxes(raw, vote, 0.4, 0.13) - raw
    first, second = ((right - left) * mean_by_summing(share, 0.4, 0.13) for share in shares)
    torch.testing.assert_close(moved, torch.tensor([first, 0, second, 0]), atol=0.01, rtol=0)


@pytest.mark.parametrize(("noise", "error"), [(0.4, 0.13), (0.2, 0.1)])
def test_expected_edges_are_nearer_to_the_truth_than_any_blend(noise: float, error: float) -> None:
    generator = torch.Generator().manual_seed(3)
    off = noise * (2 * torch.rand(20_000, 4, generator=generator) - 1)
    narrow = error / math.sqrt(
        BOX_NOISE.narrow_share + (1 - BOX_NOISE.narrow_share) * SHARED.wide_factor**2
    )
    is_wide = torch.rand(20_000, 4, generator=generator) > BOX_NOISE.narrow_share
    scale = torch.where(is_wide, SHARED.wide_factor * narrow, narrow)
    truth = torch.tensor([400.0, 400, 500, 500])
    annotated = truth + 100 * off
    voted = truth + 100 * scale * torch.randn(20_000, 4, generator=generator)

    def wrong(boxes: Tensor) -> float:
        return float(((boxes - truth) / 100).square().mean())

    blends = [wrong(torch.lerp(voted, annotated, share / 20)) for share in range(21)]
    assert wrong(expected_boxes(annotated, voted, noise, error)) < 0.96 * min(blends)


def test_edges_under_gaussian_noise_move_by_the_hand_computed_share() -> None:
    # N = 0.2 sqrt(3), so the noise has a deviation of 0.2 and a variance of 0.04. An error of
    # 0.1 sqrt(0.65 + 0.35 * 2.5^2) has parts of 0.1 (65 %) and 0.25 (35 %): x = 0.1 has the
    # densities 0.65 * 0.360978 / 0.223607 = 1.04932 and 0.35 * 0.379948 / 0.320156 = 0.415363,
    # and moves by 0.04 / 0.05 = 0.8 and 0.04 / 0.1025 = 0.390244 of itself.
    noise, error = 0.2 * math.sqrt(3), 0.1 * math.sqrt(0.65 + 0.35 * 2.5**2)
    expected = 0.1 * (1.04932 * 0.8 + 0.415363 * 0.390244) / (1.04932 + 0.415363)
    box = torch.tensor([200.0, 200, 300, 300], dtype=torch.float64)
    for is_gaussian in (True, torch.tensor(True)):
        moved = expected_boxes(box, box + 10, noise, error, is_gaussian) - box
        torch.testing.assert_close(moved, torch.full_like(box, 100 * expected), rtol=1e-4, atol=0)
    back = expected_boxes(box, box - 10, noise, error, is_gaussian=True) - box
    torch.testing.assert_close(back, -moved)
    uniform = expected_boxes(box, box + 10, noise, error, torch.tensor(False))
    assert torch.equal(uniform, expected_boxes(box, box + 10, noise, error))
    far = expected_boxes(box, box + 300, noise, error, is_gaussian=True)  # of another object
    torch.testing.assert_close(far, box, atol=1e-3, rtol=0)


def gaussian_pairs(deviation: float, error: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Annotated and predicted boxes under Gaussian noise."""
    generator = torch.Generator().manual_seed(seed)
    moves, errors = torch.randn(2, 4000, 4, generator=generator)
    return (TRUE + deviation * moves * SIDES)[None], (TRUE + error * errors * SIDES)[None]


def count_pairs(annotated: Tensor, predicted: Tensor) -> Tensor:
    return count_residuals(*edge_residuals(annotated, predicted, SIZES))


@pytest.mark.parametrize("seed", range(3))
def test_the_shape_of_the_noise_is_found(seed: int) -> None:
    gaussian = fit_box_noise(count_pairs(*gaussian_pairs(0.2, 0.05, seed)), shape="auto")
    assert gaussian.is_gaussian
    assert gaussian.gaussian_log_odds > 10
    assert gaussian.noise == pytest.approx(0.2 * math.sqrt(3), abs=0.02)
    uniform = fit_box_noise(count_pairs(*pairs(0.3, 0.05, seed=seed)), shape="auto")
    assert not uniform.is_gaussian
    assert uniform.gaussian_log_odds < -20
    assert uniform[:4] == estimate_noise(*pairs(0.3, 0.05, seed=seed))[:4]


def test_noise_of_doubtful_shape_counts_as_uniform() -> None:
    clean = fit_box_noise(count_pairs(*pairs(0, 0.05)), shape="auto")
    assert not clean.is_gaussian
    assert clean.gaussian_log_odds == pytest.approx(0, abs=0.5)
    counts = count_pairs(*gaussian_pairs(0.2, 0.05))
    odds = fit_box_noise(counts, shape="auto").gaussian_log_odds
    assert fit_box_noise(counts * 8.0 / odds, shape="auto").is_gaussian
    few = fit_box_noise(counts * 2.0 / odds, shape="auto")
    assert 1 < few.gaussian_log_odds < 7
    assert not few.is_gaussian


def test_a_given_shape_is_kept() -> None:
    counts = count_pairs(*pairs(0.3, 0.05))
    for fitted in (
        fit_box_noise(counts, shape="gaussian"),
        fit_box_noise(counts * 0, None, "gaussian"),
    ):
        assert fitted.is_gaussian
        assert fitted.gaussian_log_odds == 0
    assert not fit_box_noise(count_pairs(*gaussian_pairs(0.2, 0.05))).is_gaussian


def test_the_mean_noise_of_both_shapes_equals_the_hand_computed_one() -> None:
    assert mean_noise(0.4, is_gaussian=False) == pytest.approx(0.2)
    # a deviation of 0.4 / sqrt(3) = 0.230940 times sqrt(2 / pi) = 0.797885
    assert mean_noise(0.4, is_gaussian=True) == pytest.approx(0.184263, abs=1e-6)


@pytest.mark.parametrize(("deviation", "error"), [(0.25, 0.13), (0.15, 0.1)])
def test_the_shape_of_the_noise_makes_expected_edges_better(deviation: float, error: float) -> None:
    annotated, voted = gaussian_pairs(deviation, error)
    noise = deviation * math.sqrt(3)

    def wrong(is_gaussian: bool) -> float:
        boxes = expected_boxes(annotated, voted, noise, error, is_gaussian)
        return float(((boxes - TRUE) / SIDES).square().mean())

    assert wrong(True) < 0.97 * wrong(False)


def test_edges_annotated_at_the_border_move_half_as_far() -> None:
    # the image is 100 high and 200 wide; a pixel from the border is still at it
    sizes = torch.tensor([[100, 200], [200, 100]])
    annotated = torch.tensor([[[1.0, 10, 40, 99], [160, 0, 200, 50]]] * 2)
    mended = annotated + torch.tensor([8.0, 4, -6, -2])
    held = hold_at_border(mended, annotated, sizes, 0.5)
    assert torch.equal(hold_at_border(mended, annotated, sizes, 0.0), mended)
    across = [[[5.0, 14, 34, 98], [168, 2, 197, 48]]]  # half of 8, -2; of 4, -6
    upright = [[[5.0, 14, 34, 97], [168, 2, 197, 48]]]  # 99 of 200 is not at the border
    torch.testing.assert_close(held, torch.tensor(across + upright))


def test_edges_at_the_border_and_near_it_are_counted_by_their_distance() -> None:
    # the image is 100 high and 200 wide; sides are 40 and 50, of padding nothing counts
    sizes = torch.tensor([[100, 200]])
    boxes = torch.tensor([[[1.0, 10, 41, 60], [158.1, 50, 198.1, 100], [0.0, 0, 200, 100]]])
    counts = count_at_border(boxes, sizes, torch.tensor([[True, True, False]]))
    assert counts[0] == 2  # left of the first, bottom of the second
    inside = {place: int(count) for place, count in enumerate(counts[1:].tolist()) if count}
    # 10 and 40 of 50 are 0.2 and 0.8; 1.9 of 40 is 0.0475; what is a side away or more is far
    assert inside == {20: 1, 80: 1, 4: 1}


@pytest.mark.parametrize(
    ("at_border", "within", "share"),
    [(100, 300, 0.0), (100, 200, 0.5), (100, 100, 1.0), (100, 500, 0.0), (0, 50, 0.0)],
)
def test_the_share_that_ends_at_the_border_equals_the_hand_computed_one(
    at_border: int, within: int, share: float
) -> None:
    counts = torch.zeros(1 + NUM_BINS)
    counts[0] = at_border
    counts[1 + 39] = within  # the last bin within 0.4
    counts[1 + 40] = 70  # and the first beyond
    assert border_share(counts, 0.4) == pytest.approx(share)
    assert border_share(counts, 0.39) == (1.0 if at_border else 0.0)  # none within


@pytest.mark.parametrize(("truly", "held"), [(0.0, 0.0), (0.5, 0.5)])
def test_edges_are_kept_at_the_border_where_many_objects_end_there(
    truly: float, held: float
) -> None:
    """Sides are 100 in images of 300; half of the boxes are at the left border, or none."""
    generator = torch.Generator().manual_seed(9)
    left = 200 * torch.rand(20_000, generator=generator, dtype=torch.float64)
    left[torch.rand(20_000, generator=generator) < truly] = 0
    edges = torch.stack([left, torch.full_like(left, 100), left + 100, left * 0 + 200], dim=-1)
    moves = 40 * (2 * torch.rand(20_000, 4, generator=generator, dtype=torch.float64) - 1)
    annotated = (edges + moves).clamp(0, 300)
    counts = count_at_border(
        annotated[None], torch.tensor([[300, 300]]), torch.ones(1, 20_000).bool()
    )
    # right edges are spread evenly up to the border in both cases
    cut = annotated[:, 0] <= 1
    shared = float((left[cut] == 0).double().mean()) * float(cut.sum()) / float(counts[0])
    assert border_share(counts, 0.4) == pytest.approx(shared, abs=0.15)
    assert border_hold_share(counts, 0.4) == held


def test_half_the_move_is_nearer_to_the_truth_if_votes_end_inside() -> None:
    """As on VOC: votes end 0.13 inside the border, and half of the clipped objects end there."""
    generator = torch.Generator().manual_seed(5)
    true = 40 * torch.rand(40_000, generator=generator)
    true[::3] = 0  # of which half are moved outside, of the others a quarter
    moved = true + 40 * (2 * torch.rand(40_000, generator=generator) - 1)
    true = true[moved <= 0]
    assert float((true == 0).float().mean()) == pytest.approx(0.5, abs=0.02)
    annotated = torch.tensor([0.0, 40, 100, 80]).repeat(1, len(true), 1)
    voted = annotated.clone()
    voted[..., 0] = true + 13 + 13 * torch.randn(len(true), generator=generator)
    mended = expected_boxes(annotated, voted, 0.4, 0.13)

    def wrong(boxes: Tensor) -> float:
        return float((boxes[..., 0] - true).square().mean())

    held = hold_at_border(
        mended, annotated, torch.tensor([[300, 300]]), BOX_NOISE.border_hold_share
    )
    assert wrong(held) < 0.8 * min(wrong(mended), wrong(annotated), wrong(voted))


def test_edges_on_the_border_are_put_outside_by_a_share_of_the_side() -> None:
    # the image is 100 high and 200 wide; a quarter of the sides 40 and 60
    sizes = torch.tensor([[100, 200]])
    annotated = torch.tensor([[[0.0, 10, 40, 70], [160, 40, 199.5, 100], [60.0, 20, 100, 80]]])
    box_targets = extend_past_border(annotated + 1, annotated, sizes, 0.25)
    expected = torch.tensor(
        [[[1 - 10.0, 11, 41, 71], [161, 41, 200.5 + 9.875, 101 + 15], [61, 21, 101, 81]]]
    )
    torch.testing.assert_close(box_targets, expected)


def test_extended_edges_are_unbiased() -> None:
    """The true box ends at the border; a quarter of the noise is what cutting costs."""
    true, noise, side = torch.tensor([0.0, 40, 100, 80]), 0.4, 100
    moves = noise * side * (2 * torch.rand(1, 20_000, generator=torch.Generator()) - 1)
    annotated = true.repeat(1, 20_000, 1)
    annotated[..., 0] = (annotated[..., 0] + moves).clamp(min=0)
    sizes = torch.tensor([[300, 300]])
    mean = float(annotated[..., 0].mean())
    assert mean == pytest.approx(noise / 4 * side, abs=0.5)
    box_targets = extend_past_border(annotated, annotated, sizes, noise / 2)
    assert float(box_targets[..., 0].mean()) == pytest.approx(0, abs=0.5)
    assert torch.equal(box_targets[..., 1:], annotated[..., 1:])
