"""A training step on a GPU waits for nothing, whatever the method."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import QUICK, drawn

from boxmend.methods import METHODS
from boxmend.settings import resolved
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.processes import Processes

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

BOXES = [(0, (10.0, 10, 50, 50)), (0, (30.0, 30, 90, 80)), (1, (20.0, 20, 60, 60))]


@pytest.mark.parametrize("is_warm_up", [True, False])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_step_never_waits_for_the_device(name: str, is_warm_up: bool, tmp_path: Path) -> None:
    settings = resolved(replace(QUICK, method=name, epochs=8, precision="bfloat16"))
    detector = make_detector(settings, 3)
    training, _ = make_training(
        settings,
        drawn(tmp_path / "data", BOXES),
        detector,
        tmp_path / "run",
        Processes(torch.device("cuda")),
        lambda text: None,
    )
    training.step = 0 if is_warm_up else training.num_steps - 4
    batch = next(iter(training.loader.epoch(0, 0)))
    training.train_on(batch)  # the first step makes what is made once
    try:
        torch.cuda.set_sync_debug_mode("error")
        training.train_on(batch)
        training.train_on(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(training.recorder.figures[-1]["loss"])
