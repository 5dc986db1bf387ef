"""NOTE-RCNN learns the drawn images."""

from pathlib import Path

import pytest

import boxmend
from boxmend.settings import Optimisation, TrainSettings
from boxmend.training import train

SETTINGS = TrainSettings(
    method="note-rcnn",
    detector="tiny",
    image_size="96",
    batch_size=8,
    epochs=9,
    optimisation=Optimisation(optimizer="adamw", lr=0.003, schedule="cosine"),
)


@pytest.mark.slow
def test_it_learns_clean_drawings(tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "toys", images=400, seed=0, size=96)
    data = f"{tmp_path / 'toys'}"
    run = train([f"{data}:train"], tmp_path / "run", SETTINGS, val=[f"{data}:val"])
    assert run.summary()["val"]["voc_ap50_area"] > 0.5  # untrained it is next to nothing
