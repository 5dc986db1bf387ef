"""Small datasets drawn by hand, and settings with which a training of them takes a moment."""

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from boxmend.data.dataset import Dataset, Images, as_ids
from boxmend.data.images.reading import read_header_size
from boxmend.runs import ledger
from boxmend.runs.folder import Run
from boxmend.runs.settings import Optimisation, TrainSettings
from boxmend.training.train import Interrupted, train

Box = tuple[float, float, float, float]
SIDE = 96  # pixels
SIDES = ("x1", "y1", "x2", "y2")
QUICK = TrainSettings(
    detector="tiny",
    weights="none",
    epochs=2,
    batch_size=2,
    image_size=str(SIDE),
    log_every=1,
    warm_up=0.5,
    optimisation=Optimisation(optimizer="adamw", lr=1e-3),
)


def with_files(
    folder: Path,
    names: Sequence[str],
    boxes: Sequence[tuple[int, Box]],
    *,
    labels: tuple[str, ...] = ("disc", "square", "star"),
) -> Dataset:
    """A dataset of image files that are there, with (image row, box) annotations.

    Annotations have the ids 100, 101, ..., and labels by turns.
    """
    sizes = [read_header_size(str(folder / name)) or (0, 0) for name in names]
    n, m = len(boxes), len(names)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(m))),
            file_names=list(names),
            paths=[str(folder / name) for name in names],
            splits=["train"] * m,
            widths=np.array([width for width, _ in sizes], np.int64),
            heights=np.array([height for _, height in sizes], np.int64),
            sources=np.zeros(m, np.int64),
            rows=np.arange(m),
        ),
        label_names=labels,
        annotation_ids=as_ids([100 + k for k in range(n)]),
        image_rows=np.array([row for row, _ in boxes], np.int64),
        labels=np.arange(n) % len(labels),
        boxes=np.array([box for _, box in boxes], np.float64).reshape(n, 4),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
    )


def drawn(
    folder: Path,
    boxes: Sequence[tuple[int, Box]],
    *,
    sizes: Sequence[tuple[int, int]] = ((SIDE, SIDE),) * 4,
    labels: tuple[str, ...] = ("disc", "square", "star"),
) -> Dataset:
    """A dataset of noise with these annotations, on images of these (width, height)."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(sizes))
    names = [f"{row}.png" for row in range(len(sizes))]
    for name, (width, height) in zip(names, sizes, strict=True):
        cells = rng.integers(0, 256, (12, 12, 3), np.uint8)
        Image.fromarray(cells).resize((width, height)).save(folder / name, compress_level=1)
    return with_files(folder, names, boxes, labels=labels)


def trained(
    dataset: Dataset, out: Path, *, resume: bool = False, **changes: Any
) -> tuple[Run, list[dict[str, Any]]]:
    """Train with QUICK settings except some; return the run and all lines of the log."""
    log: list[dict[str, Any]] = []
    settings = replace(QUICK, **changes)
    return train(dataset, out, settings, resume=resume, log=log.append), log


def ids_in_ledger(run: Run, epoch: int) -> list[int]:
    """The annotations that were visited in an epoch, sorted."""
    table = ledger.read(run.path, ["epoch", "annotation_id"])
    rows: list[int] = table.filter(table["epoch"].to_numpy() == epoch)["annotation_id"].to_pylist()
    return sorted(rows)


def ensure_sound(run: Run) -> None:
    """Assert that a run came to its end with finite losses, weights and boxes."""
    from safetensors.torch import load_file

    assert run.is_finished
    figures = [
        value for line in run.read_metrics() for name, value in line.items() if _is_loss(name)
    ]
    assert figures
    assert np.isfinite(np.array(figures, np.float64)).all()  # a null would be NaN
    assert all(one.isfinite().all() for one in load_file(run.path / "model.safetensors").values())
    table = ledger.read(run.path)
    for kind in ("noisy", "matched", "final"):
        boxes = np.stack([table[f"{kind}_{side}"].to_numpy() for side in SIDES], -1)
        assert np.isfinite(boxes).all()
        if kind != "noisy":
            assert (boxes[:, 2:] > boxes[:, :2]).all()


def _is_loss(name: str) -> bool:
    return name == "loss" or name.startswith(("rpn_", "roi_"))


def assert_stops_change_nothing(dataset: Dataset, folder: Path, settings: dict[str, Any]) -> None:
    """Check that a run that stops after each of its first steps ends like one without stops."""
    whole, _ = trained(dataset, folder / "whole", **settings)
    for step in (1, 2, 3):

        def stop(line: dict[str, Any], at: int = step) -> None:
            if line.get("step") == at:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(Interrupted):
            train(dataset, folder / "run", replace(QUICK, **settings), resume=step > 1, log=stop)
    run, _ = trained(dataset, folder / "run", resume=True, **settings)
    first, second = (load_file(one.path / "model.safetensors") for one in (run, whole))
    assert first.keys() == second.keys()
    assert all(first[key].equal(second[key]) for key in first)
    parts = [
        {path.name: path.read_bytes() for path in (one.path / "ledger").iterdir()}
        for one in (run, whole)
    ]
    assert parts[0] == parts[1]
