"""Features of boxes from the backbone."""

from typing import Any

import pytest
import torch
from torchvision.ops import roi_align

from boxmend.detector import Detector, build
from boxmend.detector.describing import deepest_map, describe_boxes, stride

SIZES = torch.tensor([[96, 96], [64, 96]])


@pytest.fixture(scope="module")
def detector() -> Detector:
    made = build("tiny", 3, "default")
    made.network.eval()
    return made


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    cells = torch.randint(256, (2, 3, 12, 12), generator=generator).float()
    large = torch.nn.functional.interpolate(cells, size=(96, 96), mode="bilinear")
    return large.to(torch.uint8)


@pytest.mark.parametrize(
    ("name", "pixels", "width"),
    [("tiny", 16, 96), ("resnet18", 32, 512), ("mobilenet_v2", 32, 1280)],
)
def test_every_backbone_describes_by_its_deepest_map(name: str, pixels: int, width: int) -> None:
    made = build(name, 2)
    made.network.eval()
    assert stride(made.network.backbone) == pixels
    cells = deepest_map(made.network.backbone, torch.zeros(1, 3, 64, 128)).shape[-2:]
    assert [64 // pixels, 128 // pixels] == list(cells)
    whole, box = torch.zeros(1, 3, 64, 64), torch.tensor([[0.0, 0, 64, 64]])
    features = describe_boxes(made, whole, torch.tensor([[64, 64]]), box, torch.tensor([0]))
    assert features.shape == (1, width)
    assert not features.requires_grad


def test_a_box_is_described_by_its_content(detector: Detector, images: torch.Tensor) -> None:
    """The same pixels in another place and in another image give the same numbers."""
    moved = torch.zeros_like(images)
    moved[1, :, 18:54, 28:64] = images[0, :, 6:42, 6:42]
    box, there = torch.tensor([[10.0, 10, 36, 36]]), torch.tensor([[32.0, 22, 58, 48]])
    first = describe_boxes(detector, images, SIZES, box, torch.tensor([0]))
    second = describe_boxes(detector, moved, SIZES, there, torch.tensor([1]))
    torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)
    other = describe_boxes(detector, images, SIZES, box, torch.tensor([1]))
    assert (other - first).abs().max() > 0.05


def test_size_does_not_matter(detector: Detector, images: torch.Tensor) -> None:
    half = torch.nn.functional.interpolate(images.float(), scale_factor=0.5, mode="area")
    small = torch.zeros_like(images)
    small[:, :, :48, :48] = half.to(torch.uint8)
    box, owner = torch.tensor([[20.0, 20, 70, 70]]), torch.tensor([0])
    first = describe_boxes(detector, images, SIZES, box, owner)
    second = describe_boxes(detector, small, SIZES, box / 2, owner)
    spread = describe_boxes(detector, images, SIZES, box, torch.tensor([1])) - first
    assert (second - first).norm() < 0.35 * spread.norm()


def test_a_box_is_cut_out_with_a_little_around_it_but_within_its_image(
    detector: Detector, images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # sides of 40 and 20 become 46 and 23; image 1 is 64 high and 96 wide
    boxes = torch.tensor([[20.0, 20, 60, 40], [0, 0, 40, 20], [56, 44, 96, 64]])
    expected = [[1.0, 17, 18.5, 63, 41.5], [1, 0, 0, 43, 21.5], [1, 53, 42.5, 96, 64]]
    cuts: list[torch.Tensor] = []

    def cut(pixels: torch.Tensor, places: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        cuts.append(places)
        result: torch.Tensor = roi_align(pixels, places, *rest, **more)
        return result

    monkeypatch.setattr("boxmend.detector.describing.roi_align", cut)
    describe_boxes(detector, images, SIZES, boxes, torch.tensor([1, 1, 1]))
    torch.testing.assert_close(torch.cat(cuts), torch.tensor(expected))


def test_pixels_beyond_the_image_have_no_effect(detector: Detector, images: torch.Tensor) -> None:
    """Image 1 ends at row 64: pixels of the canvas below have no effect."""
    box, owner = torch.tensor([[30.0, 40, 80, 64]]), torch.tensor([1])
    other = images.clone()
    other[1, :, 64:] = 255
    first, second = (describe_boxes(detector, one, SIZES, box, owner) for one in (images, other))
    assert torch.equal(first, second)


def test_more_boxes_than_go_through_at_once(detector: Detector, images: torch.Tensor) -> None:
    boxes = torch.tensor([[5.0, 5, 40, 40], [30, 10, 90, 60]]).repeat(40, 1)
    owners = torch.tensor([0, 1]).repeat(40)
    features = describe_boxes(detector, images, SIZES, boxes, owners)
    torch.testing.assert_close(features, features[:2].repeat(40, 1), atol=1e-5, rtol=1e-4)


def test_a_network_of_another_precision_gives_the_same_features(images: torch.Tensor) -> None:
    box, owner = torch.tensor([[20.0, 20, 70, 70]]), torch.tensor([0])
    single, double = build("tiny", 3, "default"), build("tiny", 3, "default")
    double.network.double()
    first, second = (describe_boxes(one, images, SIZES, box, owner) for one in (single, double))
    torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)
