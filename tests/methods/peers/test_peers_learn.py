"""Every peer reaches a useful AP50 on the drawn images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend.runs.settings import CoTeachingSettings, Optimisation, TrainSettings
from boxmend.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")  # two tests at a time, on two cores

SETTINGS = TrainSettings(
    detector="tiny",
    image_size="96",
    batch_size=8,
    epochs=8,
    optimisation=Optimisation(optimizer="adamw", lr=0.003, schedule="cosine"),
)
WRONG_RATES: dict[str, dict[str, Any]] = {  # right annotations have to survive them
    "ca-bbc": {"box_noise": 0.2},
    "co-teaching": {"co_teaching": CoTeachingSettings(forget_rate=0.1)},
    "disco": {},
    "note-rcnn": {},
    "oa-mil": {},
}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toys") / "toys"
    boxmend.synthesize(out, images=250, seed=0, size=96)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(WRONG_RATES))
def test_it_reaches_the_ap50_of_the_embedded_dataset(
    method: str, toys: Path, tmp_path: Path
) -> None:
    """Without training, AP50 is almost 0."""
    settings = replace(SETTINGS, method=method, **WRONG_RATES[method])
    run = train([f"{toys}:train"], tmp_path / "run", settings, val=[f"{toys}:val"])
    scores = {name: values for name, values in run.summary().items() if name in ("val", "val_b")}
    assert scores.keys() == ({"val", "val_b"} if method == "co-teaching" else {"val"})
    assert all(values["voc_ap50_area"] > 0.4 for values in scores.values())
