"""A training step on a GPU waits for nothing, whatever the method."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from boxmend.methods.table import METHODS
from boxmend.runs import ledger
from boxmend.runs.settings import Optimisation, resolve_settings
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.loader import Batch
from boxmend.training.loop import StepResult, TrainingOutput
from boxmend.training.processes import Processes
from boxmend.training.train import train
from tests.training.small_runs import QUICK, drawn

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

BOXES = [(0, (10.0, 10, 50, 50)), (0, (30.0, 30, 90, 80)), (1, (20.0, 20, 60, 60))]


@pytest.mark.parametrize("is_warm_up", [True, False])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_step_never_waits_for_the_device(name: str, is_warm_up: bool, tmp_path: Path) -> None:
    settings = resolve_settings(replace(QUICK, method=name, epochs=8, precision="bfloat16"))
    detector = make_detector(settings, 3)
    training, _ = make_training(
        settings,
        drawn(tmp_path / "data", BOXES),
        detector,
        Processes(torch.device("cuda")),
        TrainingOutput(tmp_path / "run"),
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
    assert torch.isfinite(training.recorder.pending[-1].figures["loss"])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_replayed_steps_are_those_that_are_launched_one_by_one(name: str, tmp_path: Path) -> None:
    runs = []
    for graph in (False, True):
        settings = replace(
            QUICK,
            method=name,
            epochs=4,
            precision="float32",
            cuda_graph=graph,
            optimisation=Optimisation(lr=1e-6),  # no two runs on a GPU round alike, so stay near
        )
        runs.append(
            train(drawn(tmp_path / f"data-{graph}", BOXES), tmp_path / f"run-{graph}", settings)
        )
    launched, replayed = (
        [line["loss"] for line in run.read_metrics() if "loss" in line] for run in runs
    )
    assert launched
    assert replayed == pytest.approx(launched, rel=1e-3, nan_ok=True)
    verdicts = [ledger.read(run.path, ["verdict"])["verdict"].to_pylist() for run in runs]
    assert verdicts[0] == verdicts[1]


def test_a_step_is_recorded_once_a_phase_and_replayed_after_that(tmp_path: Path) -> None:
    settings = resolve_settings(replace(QUICK, method="mend", epochs=8))
    detector = make_detector(settings, 3)
    training, _ = make_training(
        settings,
        drawn(tmp_path / "data", BOXES),
        detector,
        Processes(torch.device("cuda")),
        TrainingOutput(tmp_path / "run", lambda text: pytest.fail(text)),
    )
    calls = []
    compute = training._compute

    def counted(batch: Batch) -> StepResult:
        calls.append(1)
        return compute(batch)

    assert training.replay is not None
    training.replay._compute = counted
    batch = next(iter(training.loader.epoch(0, 0)))
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        for _ in range(5):
            training.step = 0
            training.train_on(batch)
    assert len(calls) == 2  # once as it is, once recorded
