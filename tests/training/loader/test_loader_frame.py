"""The network frame by hand-computed numbers, then there and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from boxmend.errors import UsageError
from boxmend.training.loader.frame import Frame, ImageSize, fit, mirrored_images

# width, height, short, long -> new width, new height
FITS = [
    ((500, 375, 600, 1000), (800, 600)),  # 600/375 = 1.6 < 1000/500 = 2
    ((375, 500, 600, 1000), (600, 800)),
    ((500, 200, 600, 1000), (1000, 400)),  # 1000/500 = 2 < 600/200 = 3
    ((1000, 600, 600, 1000), (1000, 600)),  # both bind: already fits
    ((2000, 1500, 600, 1000), (800, 600)),  # 600/1500 = 0.4 < 0.5
    ((500, 333, 600, 1000), (901, 600)),  # 500 * 600/333 = 900.9
    ((600, 1001, 600, 1000), (599, 1000)),  # 600 * 1000/1001 = 599.4
    ((999, 600, 600, 1000), (999, 600)),  # already fits by its short side
    ((400, 300, None, 320), (320, 240)),
    ((100, 80, None, 320), (320, 256)),
    ((320, 7, None, 320), (320, 7)),
    ((80, 80, None, 320), (320, 320)),
    ((4, 3, None, 2), (2, 2)),  # 3 * 2/4 = 1.5, half up
    ((5000, 2, None, 100), (100, 1)),  # 0.04 would leave nothing
    ((2, 5000, 50, 100), (1, 100)),
]


@pytest.mark.parametrize(("size", "expected"), FITS)
def test_sizes_are_fitted_as_computed_by_hand(
    size: tuple[int, int, int | None, int], expected: tuple[int, int]
) -> None:
    assert fit(*size) == expected


SIDES = st.integers(1, 5000)


@given(SIDES, SIDES, st.none() | st.integers(1, 1500), st.integers(1, 1500))
def test_no_bound_is_exceeded_and_one_is_met(
    width: int, height: int, short: int | None, long: int
) -> None:
    new = fit(width, height, short, long)
    assert fit(height, width, short, long) == new[::-1]
    assert min(new) >= 1
    assert max(new) <= long
    assert short is None or min(new) <= short
    assert max(new) == long or min(new) == short


@pytest.mark.parametrize("size", [ImageSize(0), ImageSize(-5), ImageSize(5, 0), ImageSize(5, -1)])
def test_a_size_without_pixels_is_refused(size: ImageSize) -> None:
    with pytest.raises(UsageError, match="at least 1 pixel"):
        size.check()
    ImageSize(1, 1).check()


def frame(
    scale_x: list[float], scale_y: list[float], widths: list[int], flipped: list[bool]
) -> Frame:
    scales = torch.tensor([scale_x, scale_y], dtype=torch.float64)
    return Frame(scales[0], scales[1], torch.tensor(widths), torch.tensor(flipped))


def test_boxes_cross_over_as_computed_by_hand() -> None:
    # The first image is scaled by 2 and 3, the second by 0.5 and 0.25, 50 wide and mirrored:
    #   x: 20 * 0.5 = 10, 60 * 0.5 = 30 -> 50 - 30 = 20, 50 - 10 = 40;  y: 8/4 = 2, 40/4 = 10
    boxes = torch.tensor([[[1.0, 2, 3, 5]], [[20.0, 8, 60, 40]]])
    expected = torch.tensor([[[2.0, 6, 6, 15]], [[20.0, 2, 40, 10]]])
    crossing = frame([2, 0.5], [3, 0.25], [200, 50], [False, True])
    before = boxes.clone()
    assert crossing.to_network(boxes).equal(expected)
    assert crossing.to_image(expected).equal(before)
    assert boxes.equal(before)


def test_an_unscaled_unflipped_box_does_not_change_by_a_bit() -> None:
    boxes = torch.rand(3, 7, 4) * 1000
    crossing = frame([1] * 3, [1] * 3, [1000] * 3, [False] * 3)
    assert crossing.to_network(boxes).equal(boxes)
    assert crossing.to_image(boxes).equal(boxes)


@given(st.integers(16, 1000), st.integers(16, 1000), st.integers(16, 1000), st.booleans())
def test_boxes_come_back_within_a_ten_thousandth_of_a_pixel(
    width: int, height: int, long: int, is_flipped: bool
) -> None:
    new_width, new_height = fit(width, height, None, long)
    generator = torch.Generator().manual_seed(width)
    boxes = torch.rand(1, 50, 4, generator=generator) * torch.tensor([width, height] * 2)
    crossing = frame([new_width / width], [new_height / height], [new_width], [is_flipped])
    there = crossing.to_network(boxes)
    assert there.dtype == torch.float32
    assert (crossing.to_image(there) - boxes).abs().max() < 1e-4


def test_mirroring_turns_the_real_part_alone() -> None:
    row = torch.tensor([1, 2, 3, 0, 0], dtype=torch.uint8)
    images = row.expand(2, 3, 4, 5)
    mirrored = mirrored_images(images, torch.tensor([3, 3]), torch.tensor([False, True]))
    assert mirrored[0].equal(images[0])
    assert mirrored[1].equal(torch.tensor([3, 2, 1, 0, 0], dtype=torch.uint8).expand(3, 4, 5))


def paint_box(box: Tensor, width: int) -> Tensor:
    image = torch.zeros(1, 3, 8, width, dtype=torch.uint8)
    x1, y1, x2, y2 = box.long().tolist()
    image[:, :, y1:y2, x1:x2] = 255
    return image


def test_a_mirrored_box_lies_on_its_mirrored_object() -> None:
    box, flipped = torch.tensor([2.0, 1, 5, 4]), torch.tensor([True])
    mirrored = mirrored_images(paint_box(box, 16), torch.tensor([11]), flipped)
    moved = frame([1], [1], [11], [True]).to_network(box[None, None])[0, 0]
    assert moved.tolist() == [6, 1, 9, 4]  # 11 - 5, 11 - 2
    assert mirrored.equal(paint_box(moved, 16))
