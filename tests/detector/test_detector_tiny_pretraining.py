"""The script that makes the weights of `tiny`, and the toys that it draws."""

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from boxmend.data.synth import LABEL_NAMES
from boxmend.data.synth.shapes import SHAPES, Field, PlacedShape, Shape, compute_extent, linear_map
from boxmend.detector import Targets, build
from boxmend.detector.faster_rcnn import normalise
from tests import ROOT
from tests.data.synth.silhouettes import silhouette

TOOLS = ROOT / "tools"
SIDE = 96


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("other_toys")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    torch.set_num_threads(1)
    return importlib.import_module("pretrain_tiny")


def alone(shape: Shape, *, turn: float, build: float, size: int) -> tuple[Field, np.ndarray]:
    """A shape in the middle of an empty image: what it covers, and its box in pixels."""
    transform = linear_map(radius=0.4, turn=turn, aspect=1.0)
    box = compute_extent(shape, build, transform) + 0.5
    return silhouette(
        PlacedShape(shape.distance, build, (0.5, 0.5), transform, box), size
    ), box * size


def test_there_are_39_classes_and_none_is_the_embedded_datasets(toys: ModuleType) -> None:
    assert len(toys.SHAPES) == 13
    assert len(set(toys.LABEL_NAMES)) == len(toys.LABEL_NAMES) == 39
    assert set(toys.SHAPES).isdisjoint(LABEL_NAMES)


def test_boxes_are_tight_around_every_shape(toys: ModuleType) -> None:
    for name, shape in toys.SHAPES.items():
        for turn, build_ in ((0.0, 0.0), (0.13, 1.0), (0.71, -1.0)):
            covered, box = alone(shape, turn=turn, build=build_, size=200)
            rows, columns = np.nonzero(covered > 0.5)
            listed = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert np.abs(np.array(listed) - box).max() < 1.5, (name, turn)


def test_no_shape_is_an_embedded_one_in_disguise(toys: ModuleType) -> None:
    known = {name: alone(s, turn=0, build=0, size=64)[0] > 0.5 for name, s in SHAPES.items()}
    for name, shape in toys.SHAPES.items():
        for turn in np.arange(0, 1, 1 / 24).tolist():
            mask = alone(shape, turn=turn, build=0, size=64)[0] > 0.5
            for other, taken in known.items():
                assert (mask & taken).sum() < 0.8 * (mask | taken).sum(), (name, other, turn)


def test_a_scene_depends_on_seed_and_index_alone(toys: ModuleType) -> None:
    first, again, other = toys.draw(5, 2), toys.draw(5, 2), toys.draw(5, 3)
    assert np.array_equal(first.pixels, again.pixels)
    assert np.array_equal(first.boxes, again.boxes)
    assert not np.array_equal(first.pixels, other.pixels)


def test_scenes_hold_some_objects_of_useful_size_inside_the_image(toys: ModuleType) -> None:
    scenes = [toys.draw(7, index) for index in range(20)]
    boxes = np.concatenate([scene.boxes for scene in scenes])
    assert all(1 <= len(scene.labels) <= toys.MOST_OBJECTS for scene in scenes)
    assert all(scene.pixels.shape == (3, SIDE, SIDE) for scene in scenes)
    assert boxes.min() >= 0
    assert boxes.max() <= SIDE
    sides = boxes[:, 2:] - boxes[:, :2]
    assert sides.min() > 5
    assert sides.max() < 0.8 * SIDE


@pytest.mark.parametrize(
    ("is_mirrored", "expected"),
    [
        ((False, False), [30, 10, 50, 20]),
        ((True, False), [46, 10, 66, 20]),  # 96 - 50, 96 - 30
        ((False, True), [30, 76, 50, 86]),  # 96 - 20, 96 - 10
        ((True, True), [46, 76, 66, 86]),
    ],
)
def test_boxes_are_mirrored_with_their_images(
    script: ModuleType, is_mirrored: tuple[bool, bool], expected: list[int]
) -> None:
    images = torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)
    images[..., 10:20, 30:50] = 255
    mask = torch.ones(1, 1, dtype=torch.bool)
    targets = Targets(torch.tensor([[[30.0, 10, 50, 20]]]), torch.zeros(1, 1).long(), mask, ~mask)
    seen, wanted = script.mirror(images, targets, torch.tensor(is_mirrored)[:, None])
    assert wanted.boxes[0, 0].tolist() == expected
    left, top, right, bottom = expected
    assert (seen[..., top:bottom, left:right] == 255).all()
    assert (seen == 255).sum() == 3 * 10 * 20


def test_the_same_seed_makes_the_same_file_and_a_detector_can_start_from_it(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for path in paths:
        arguments = ["--images", "32", "--epochs", "1", "--out", str(path)]
        monkeypatch.setattr("sys.argv", ["pretrain_tiny.py", *arguments])
        script.main()
    assert paths[0].read_bytes() == paths[1].read_bytes()
    backbone = build("tiny", 2, paths[0]).network.backbone
    fresh = build("tiny", 2).network.backbone
    assert not torch.equal(backbone.stem[0].weight, fresh.stem[0].weight)


def test_measured_statistics_depend_only_on_the_images(
    script: ModuleType,
) -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (4, 3, SIDE, SIDE), dtype=torch.uint8)
    trained = build("tiny", 39, frozen_norm=False)
    trained.features(images // 4, torch.full((4, 2), SIDE))  # darker ones leave their traces
    script.measure_norms(trained, images)
    convolution, norm, _ = trained.network.backbone.stem
    with torch.no_grad():
        seen = convolution(normalise(images, torch.full((4, 2), SIDE)))
    torch.testing.assert_close(norm.running_mean, seen.mean((0, 2, 3)), rtol=0, atol=1e-4)
    torch.testing.assert_close(norm.running_var, seen.var((0, 2, 3)), rtol=1e-3, atol=0)


def test_the_saved_network_computes_the_same_as_the_trained_one(
    script: ModuleType, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    images, _ = script.draw_scenes(3, 24)
    trained = build("tiny", 39, frozen_norm=False)
    script.measure_norms(trained, images)
    path = tmp_path / "tiny.safetensors"
    script.save_backbone(trained, path)
    made = build("tiny", 2, path)
    sizes = torch.full((24, 2), SIDE)
    trained.network.eval()
    with torch.no_grad():
        expected, features = trained.features(images, sizes), made.features(images, sizes)
    for level in ("0", "1"):
        spread = float(expected.maps[level].std())
        assert math.isfinite(spread)
        error = (expected.maps[level] - features.maps[level]).abs().max()
        assert error < 0.02 * spread, level
