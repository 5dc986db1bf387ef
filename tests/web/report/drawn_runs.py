"""Finished runs on disk made by hand, with images to cut pictures from."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.types import Box
from boxmend.runs.folder import open_run
from tests.fabricated_runs import BOXES, NAMES, STEPS_PER_EPOCH, Visit, run_on
from tests.web.report.drawn_records import made_dataset


def drawn_run(
    folder: Path,
    visits: Sequence[Visit],
    *,
    boxes: Sequence[Box] = BOXES,
    names: tuple[str, ...] = NAMES,
    summary: dict[str, Any] | None = None,
    files: Sequence[str] | None = None,
) -> Path:
    """The folder of a finished run without warm-up; its data lie in `folder` as COCO."""
    dataset = made_dataset(boxes, names=names, folder=folder / "pictures")
    if files is not None:
        dataset = rename_files(dataset, files, folder / "pictures")
    dataset.save(folder / "data", format="coco")
    address = str(folder / "data")
    run = run_on(
        load(address),
        folder / "run",
        [address],
        visits,
        settings={"method": "mend", "detector": "tiny", "seed": 3},
        facts={"versions": {"boxmend": "0.0", "torch": "9.9"}},
        summary=summary,
    )
    steps = (max(visit.epoch for visit in visits) + 1) * STEPS_PER_EPOCH
    open_run(run).append_metrics({"step": steps, "epoch": 0, "loss": 1.0})
    return run


def rename_files(dataset: Dataset, files: Sequence[str], folder: Path) -> Dataset:
    """The same dataset with other names of its image files, drawn again."""
    for name in files:
        Image.new("RGB", (100, 100), (90, 120, 60)).save(folder / name, "PNG")
    paths = [str(folder / name) for name in files]
    return replace(dataset, images=replace(dataset.images, file_names=list(files), paths=paths))
