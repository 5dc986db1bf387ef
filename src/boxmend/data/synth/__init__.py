"""The built-in dataset: drawn toys on varied backgrounds, identical for a seed on any machine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from boxmend.data.dataset import Dataset, Images
from boxmend.data.files.staging import stage_folder
from boxmend.data.formats import FORMATS
from boxmend.data.formats.writing import SaveResult, WriteOptions, write_into
from boxmend.data.synth.scene import LABEL_NAMES, DrawnScene, draw_scene
from boxmend.errors import UsageError

VAL_SHARE = 0.2  # of the images; the others are for training

__all__ = ["LABEL_NAMES", "VAL_SHARE", "DrawnScene", "draw_scene", "synthesize"]


def synthesize(
    out: str | Path,
    *,
    images: int = 1000,
    seed: int = 0,
    size: int = 96,
    format: str = "coco",
    progress: Callable[[int, int], None] | None = None,
) -> SaveResult:
    """Draw `images` images with annotations and write them to `out`, split into train and val.

    `progress` is called with the number of finished images and of all images. Image `i` depends
    only on the seed and the size, so a larger dataset begins with the images of a smaller one.
    """
    if images < 1 or seed < 0 or not 32 <= size <= 4096:
        raise UsageError("images must be at least 1, seed at least 0, size between 32 and 4096")
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    with stage_folder(Path(out)) as folder:
        scenes = []
        image_paths = FORMATS[format].assign_image_paths(_make_empty_dataset(images, size))
        for index, image_path in enumerate(image_paths):
            scene = draw_scene(seed, index, size=size)
            scenes.append((scene.boxes, scene.labels))
            path = folder / image_path
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(scene.pixels).save(path, compress_level=6)
            if progress is not None:
                progress(index + 1, images)
        dataset = _add_annotations(_make_empty_dataset(images, size), scenes)
        options = WriteOptions(images_as="none")
        return write_into(folder, dataset, format, options, out=Path(out))


def _make_empty_dataset(count: int, size: int) -> Dataset:
    """Return the images to draw, without annotations; every fifth is for validation."""
    period = round(1 / VAL_SHARE)
    splits = ["val" if row % period == period - 1 else "train" for row in range(count)]
    images = Images(
        ids=np.arange(1, count + 1),
        file_names=[f"{row + 1:06d}.png" for row in range(count)],
        paths=[""] * count,
        splits=splits,
        widths=np.full(count, size),
        heights=np.full(count, size),
        sources=np.zeros(count, np.int64),
        rows=np.arange(count),
    )
    return Dataset(
        images=images,
        label_names=LABEL_NAMES,
        annotation_ids=np.empty(0, np.int64),
        image_rows=np.empty(0, np.int64),
        labels=np.empty(0, np.int64),
        boxes=np.empty((0, 4)),
        is_crowd=np.empty(0, np.bool_),
        is_difficult=np.empty(0, np.bool_),
        source_of=np.empty(0, np.int64),
        source_rows=np.empty(0, np.int64),
    )


def _add_annotations(dataset: Dataset, scenes: list[tuple[np.ndarray, np.ndarray]]) -> Dataset:
    counts = [len(labels) for _, labels in scenes]
    return dataset.add(
        np.repeat(np.arange(len(scenes)), counts),
        np.concatenate([labels for _, labels in scenes]),
        np.concatenate([boxes for boxes, _ in scenes]),
    )
