"""Images and predictions for Transformers, with a small stand-in for its image processors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import boxmend
from boxmend.errors import DataError, UsageError
from boxmend.integrations.transformers.images import TrainingImages, collate
from boxmend.integrations.transformers.predicting import compute_frame_sizes, predict
from tests.integrations.noisy_toys import SIDE, NoisyToys, draw_noisy_toys
from tests.integrations.uneven_images import RectangleFinder, make_uneven_images


class Inputs(dict[str, Any]):
    def to(self, device: Any, dtype: Any) -> "Inputs":
        return self


class Processor:
    """Resizes images to a square; its detections are 120 known ones in every image."""

    def __init__(self, size: tuple[int, int] | None = (SIDE, SIDE)):
        self.size = size
        self.target_sizes: list[list[float]] = []
        self.thresholds: list[float] = []

    def __call__(self, images: Any, return_tensors: str, annotations: Any = None) -> Inputs:
        pictures: Sequence[Image.Image] = images if isinstance(images, list) else [images]
        pixels = [
            torch.tensor(np.array(picture.resize(self.size) if self.size else picture))
            for picture in pictures
        ]
        inputs = Inputs(pixel_values=torch.stack(pixels).permute(0, 3, 1, 2) / 255)
        if annotations is not None:
            known = annotations["annotations"]
            boxes = torch.tensor([entry["bbox"] for entry in known]).reshape(-1, 4)
            areas = torch.tensor([entry["area"] for entry in known])
            torch.testing.assert_close(boxes[:, 2] * boxes[:, 3], areas)
            labels = torch.tensor([entry["category_id"] for entry in known])
            inputs["labels"] = [{"boxes": boxes, "class_labels": labels}]
        return inputs

    def post_process_object_detection(
        self, outputs: Any, threshold: float, target_sizes: torch.Tensor
    ) -> list[dict[str, torch.Tensor]]:
        self.target_sizes += target_sizes.tolist()
        self.thresholds.append(threshold)
        scores = torch.linspace(0.2, 0.9, 120)
        boxes = torch.tensor([[1.0, 2, 3, 4]]).expand(120, 4) + scores[:, None]
        found = {"scores": scores, "labels": torch.arange(120) % 2, "boxes": boxes}
        return [found] * len(target_sizes)


@pytest.fixture
def toys(tmp_path: Path) -> NoisyToys:
    return draw_noisy_toys(tmp_path)


def test_the_best_detections_of_each_image_are_handed_on(tmp_path: Path) -> None:
    dataset, processor, model = make_uneven_images(tmp_path / "a"), Processor(), RectangleFinder()
    found = predict(model, TrainingImages(dataset, processor), batch_size=4)
    assert processor.target_sizes[:2] == [[120, 40], [50, 200]]  # height, width
    assert processor.thresholds == [0.01, 0.01]
    assert model.training
    assert len(found) == 6 * 100
    assert found.image_ids == np.repeat(dataset.images.ids, 100).tolist()
    np.testing.assert_allclose(found.boxes[0], np.array([1, 2, 3, 4]) + 0.9, atol=1e-6)
    assert found.scores.min() > 0.3
    assert found.labels[:2] == ["b", "a"]


def test_items_have_the_annotations_in_pixels_of_the_image(toys: NoisyToys) -> None:
    item = TrainingImages(toys.noisy, Processor())[3]
    rows = np.flatnonzero(toys.noisy.image_rows == 3)
    boxes = toys.noisy.boxes[rows]
    expected = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    np.testing.assert_allclose(item["labels"]["boxes"], expected, rtol=1e-6)
    assert item["labels"]["class_labels"].tolist() == toys.noisy.labels[rows].tolist()
    assert item["pixel_values"].shape == (3, SIDE, SIDE)


def test_a_frame_is_as_large_as_its_padded_input() -> None:
    sizes = torch.tensor([[100, 50], [80, 80]])
    mask = torch.zeros(2, 20, 40, dtype=torch.int64)
    mask[0, :20, :10] = 1  # 5 pixels of the image per pixel of the input
    mask[1, :10, :10] = 1  # 8
    assert compute_frame_sizes(sizes, None) is sizes
    assert compute_frame_sizes(sizes, mask).tolist() == [[100, 200], [160, 320]]


def test_annotations_of_weight_zero_are_left_out(toys: NoisyToys, tmp_path: Path) -> None:
    images = TrainingImages(toys.noisy, Processor())
    first = np.flatnonzero(toys.noisy.image_rows == 0)
    assert len(images[0]["labels"]["class_labels"]) == len(first) > 1
    annotations = boxmend.Mender(toys.noisy, out=tmp_path / "run").annotations()
    annotations.weights[first[0]] = 0
    images.exchange(annotations)
    expected = toys.noisy.labels[first[1:]].tolist()
    assert images[0]["labels"]["class_labels"].tolist() == expected
    annotations.weights[first] = 0
    images.exchange(annotations)
    assert images[0]["labels"]["boxes"].shape == (0, 4)


def test_crowds_are_no_annotations_from_the_start(toys: NoisyToys) -> None:
    rows = np.flatnonzero(toys.noisy.image_rows == 0)
    toys.noisy.is_crowd[rows[0]] = True
    images = TrainingImages(toys.noisy, Processor())
    assert images[0]["labels"]["class_labels"].tolist() == toys.noisy.labels[rows[1:]].tolist()


def test_annotations_without_a_label_or_a_box_are_left_out(toys: NoisyToys) -> None:
    rows = np.flatnonzero(toys.noisy.image_rows == 0)
    toys.noisy.labels[rows[0]] = -1
    assert len(TrainingImages(toys.noisy, Processor())[0]["labels"]["boxes"]) == len(rows) - 1
    toys.noisy.boxes[rows[1], 2] = np.nan
    assert len(TrainingImages(toys.noisy, Processor())[0]["labels"]["boxes"]) == len(rows) - 2


def test_a_batch_has_stacked_images_and_a_list_of_labels(toys: NoisyToys) -> None:
    images = TrainingImages(toys.noisy, Processor())
    batch = collate([images[0], images[1]])
    assert sorted(batch) == ["labels", "pixel_values"]
    assert batch["pixel_values"].shape == (2, 3, SIDE, SIDE)
    assert (
        batch["labels"][1]["class_labels"].tolist() == images[1]["labels"]["class_labels"].tolist()
    )
    mask = torch.ones(SIDE, SIDE)
    masked = collate([{**images[row], "pixel_mask": mask} for row in range(2)])
    assert masked["pixel_mask"].shape == (2, SIDE, SIDE)


def test_images_of_different_shapes_are_no_batch(tmp_path: Path) -> None:
    images = TrainingImages(make_uneven_images(tmp_path / "uneven"), Processor(size=None))
    with pytest.raises(UsageError, match=r"different shapes, such as \(3, .* pad_size"):
        collate([images[row] for row in range(3)])


def test_datasets_and_processors_that_do_not_fit_are_refused(toys: NoisyToys) -> None:
    with pytest.raises(UsageError, match="object has no post_process_object_detection"):
        TrainingImages(toys.noisy, object())
    toys.noisy.images.paths[3] = ""
    with pytest.raises(DataError, match="the folder of the images is unknown"):
        TrainingImages(toys.noisy, Processor())
