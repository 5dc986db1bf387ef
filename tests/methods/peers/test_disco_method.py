"""DISCO: its equations by numbers worked out by hand, and its settings."""

import math
from typing import Any

import pytest
import torch

from boxmend.errors import UsageError
from boxmend.methods.peers.disco import (
    Disco,
    Gaussians,
    fit_gaussians,
    outputs_with_spread,
    sample_boxes,
    spread_targets,
)
from boxmend.methods.table import MethodInputs, build
from boxmend.runs.settings import DiscoSettings, MendSettings
from tests.methods.method_batches import NAN
from tests.methods.peers.bag_scenes import tiny


def test_a_bag_is_a_gaussian_weighted_by_scores() -> None:
    boxes = torch.tensor([[[[10.0, 0, 40, 20], [14, 0, 40, 28], [NAN] * 4]]]).nan_to_num(nan=900.0)
    is_member = torch.tensor([[[True, True, False]]])
    # T = 0.1, scores 0.1 ln 3 apart: the second weighs three times the first.
    scores = torch.tensor([[[0.2, 0.2 + 0.1 * math.log(3), 0.9]]])
    fitted = fit_gaussians(boxes, scores, is_member, 0.1)
    # x1: 10 / 4 + 14 * 3 / 4 = 13, variance 9 / 4 + 3 / 4 = 3; y2: 20 / 4 + 28 * 3 / 4 = 26, and
    # variance 36 / 4 + 4 * 3 / 4 = 12
    torch.testing.assert_close(fitted.mean, torch.tensor([[[13.0, 0, 40, 26]]]))
    expected = torch.tensor([[[math.sqrt(3), 0, 0, math.sqrt(12)]]])
    torch.testing.assert_close(fitted.std, expected)


def test_a_high_temperature_weighs_all_equally_and_a_low_one_selects_the_best() -> None:
    boxes = torch.tensor([[[[10.0, 0, 40, 20], [14, 0, 40, 28]]]])
    scores, is_member = torch.tensor([[[0.4, 0.6]]]), torch.ones(1, 1, 2, dtype=torch.bool)
    even = fit_gaussians(boxes, scores, is_member, 1e6)
    torch.testing.assert_close(even.mean, torch.tensor([[[12.0, 0, 40, 24]]]))
    torch.testing.assert_close(even.std, torch.tensor([[[2.0, 0, 0, 4]]]))
    best = fit_gaussians(boxes, scores, is_member, 1e-6)
    assert torch.equal(best.mean, boxes[:, :, 1])
    assert not best.std.any()


def test_an_empty_bag_has_no_distribution_and_no_nan() -> None:
    none = torch.zeros(1, 2, 3, dtype=torch.bool)
    fitted = fit_gaussians(torch.full((1, 2, 3, 4), 7.0), torch.rand(1, 2, 3), none, 0.1)
    assert not fitted.mean.any()
    assert not fitted.std.any()


def test_deviations_are_exact_far_from_the_origin() -> None:
    boxes = torch.tensor([[[[1000.0, 1000, 1300, 1300], [1000.25, 1000, 1300, 1300]]]])
    is_member = torch.ones(1, 1, 2, dtype=torch.bool)
    fitted = fit_gaussians(boxes, torch.zeros(1, 1, 2), is_member, 0.1)
    assert fitted.std[0, 0].tolist() == pytest.approx([0.125, 0, 0, 0])


def test_boxes_are_drawn_by_deviations_from_the_mean_and_cut_at_the_image() -> None:
    bag = Gaussians(torch.tensor([[[10.0, 10, 30, 90]]]), torch.tensor([[[2.0, 0, 30, 20]]]))
    # one deviation up, one down: 12 and 8; 30 +- 30, where 0 is left of 8; 110 is outside
    uniform = torch.tensor([[[[0.841345] * 4, [0.158655] * 4]]])
    sampled = sample_boxes(bag, uniform, torch.tensor([[True]]), torch.tensor([[100.0, 100.0]]))
    expected = torch.tensor([[[[12.0, 10, 60, 100], [8.0, 10, 9, 70]]]])
    torch.testing.assert_close(sampled, expected, rtol=1e-4, atol=1e-3)
    none = sample_boxes(bag, uniform, torch.tensor([[False]]), torch.tensor([[100.0, 100.0]]))
    assert none.tolist() == [[[[0, 0, 1, 1]] * 2]]


def test_the_spread_is_the_variance_in_shares_of_the_sides() -> None:
    std = torch.tensor([[2.0, 4.0, 0.0, 1.0]])
    boxes = torch.tensor([[10.0, 10, 30, 50]])  # 20 wide, 40 high
    expected = [math.log(0.01), math.log(0.01), math.log(1e-6), math.log(1 / 1600)]
    assert spread_targets(std, boxes)[0].tolist() == pytest.approx(expected)
    twice = spread_targets(2 * std, 2 * boxes)
    torch.testing.assert_close(twice, spread_targets(std, boxes))


def test_the_output_with_spread_is_the_ordinary_one_and_four_numbers_more() -> None:
    detector = tiny("disco")
    boxes = torch.tensor([[[5.0, 5, 60, 60], [20, 30, 90, 70], [0, 0, 0, 0]]])
    with torch.no_grad():
        features = detector.features(torch.rand(1, 3, 128, 128), torch.tensor([[128.0, 128.0]]))
        output, spread = outputs_with_spread(detector, features, boxes)
        usual = detector.roi_outputs(features, boxes)
    assert torch.equal(output.logits, usual.logits)
    assert torch.equal(output.deltas, usual.deltas)
    assert spread.shape == (1, 3, 4)
    assert (spread[0, 0] != spread[0, 1]).all()


def test_it_has_no_state() -> None:
    method = build("disco", MethodInputs(8, 3, settings=DiscoSettings(bag_loss_weight=0.2)))
    assert isinstance(method, Disco)
    assert method.settings.bag_loss_weight == 0.2
    assert method.state_dict() == {}
    method.load_state_dict({})


def test_settings_of_another_method_are_refused() -> None:
    with pytest.raises(UsageError, match="disco takes DiscoSettings, not MendSettings"):
        build("disco", MethodInputs(1, 1, settings=MendSettings()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("bag_loss_weight", -0.1),
            ("spread_loss_weight", math.inf),
            ("temperature", 0.0),
            ("samples", 0),
        ),
        *(("exponent", -1.0), ("mean_box_max_weight", 1.1), ("correction_from", NAN)),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"disco\.{name} is "):
        DiscoSettings(**{name: value})
