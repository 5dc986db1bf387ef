"""Replayed steps equal computed ones; a stand-in on the CPU takes the place of CUDA graphs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from boxmend.methods.table import METHODS
from boxmend.runs.settings import Optimisation, resolve_settings
from boxmend.runs.settings.presets import PAPER_METHODS
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.loader import Batch, Frame
from boxmend.training.loop import Training, TrainingOutput
from boxmend.training.processes import Processes
from boxmend.training.replay import RandomNumbers, Replay
from tests.training.recorded_graphs import Graph, patch_cuda, record
from tests.training.small_runs import QUICK, drawn

pytestmark = pytest.mark.usefixtures("one_thread")

ALONE = Processes(torch.device("cpu"))
BOXES = [
    *((0, (10.0, 10, 50, 50)), (0, (30.0, 30, 90, 80)), (1, (20.0, 20, 60, 60))),
    *((2, (5.0, 40, 70, 90)), (3, (50.0, 8, 88, 44)), (3, (12.0, 50, 40, 90))),
]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    return patch_cuda(monkeypatch)


def batch_of(number: int, images: int = 2) -> Batch:
    """A batch whose every field depends on the number."""
    annotations = torch.arange(images * 3).view(images, 3) + number
    return Batch(
        images=torch.full((images, 3, 4, 4), number, dtype=torch.uint8),
        sizes=torch.full((images, 2), 10 * number),
        boxes=torch.rand(images, 3, 4, generator=torch.Generator().manual_seed(number)),
        labels=annotations % 5,
        is_box=annotations % 2 == 0,
        is_ignored=annotations % 3 == 0,
        rows=annotations + 100,
        frame=Frame(
            torch.full((images,), 0.5 * number, dtype=torch.float64),
            torch.full((images,), 0.25 * number, dtype=torch.float64),
            torch.full((images,), 32 + number),
            torch.arange(images) == number % images,
        ),
        image_rows=np.arange(images) + number,
    )


def sums(batch: Batch) -> Tensor:
    """The sum of every tensor of a batch, each image with a weight of its own; [11]."""
    weights = torch.arange(1, len(batch.images) + 1, dtype=torch.float64)
    fields = [one for one in (*batch, *batch.frame) if isinstance(one, Tensor)]
    return torch.stack(
        [field.double().reshape(len(field), -1).sum(1) @ weights for field in fields]
    )


class Computing:
    """A computation that has a memory and draws numbers; it counts its calls."""

    def __init__(self, note: Callable[[str], None] = pytest.fail):
        self.random_numbers = RandomNumbers(ALONE)
        self.memory = torch.zeros(11, dtype=torch.float64)
        self.num_calls = 0
        self.replay = Replay(self.compute, self.random_numbers, note)

    def compute(self, batch: Batch) -> dict[str, Tensor]:
        self.num_calls += 1
        result = sums(batch)
        self.memory.mul_(0.5).add_(result)
        drawn = [
            self.random_numbers.draw(torch.Size((2, 3))),
            self.random_numbers.draw(torch.Size((2, 2))),
        ]
        return {"sums": result, "memory": self.memory + 0, "drawn": torch.cat(drawn, dim=1)}

    def eager(self, batch: Batch, seed: int) -> dict[str, Tensor]:
        self.random_numbers.start(seed)
        return self.compute(batch)


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


def test_replays_see_every_field_of_the_batch_the_seed_and_the_memory(graphs: list[Graph]) -> None:
    replayed, eager = Computing(), Computing()
    for number in range(1, 7):
        result = replayed.replay(batch_of(number), "phase", seed=number)
        assert_equal(result, eager.eager(batch_of(number), seed=number))
    assert replayed.num_calls == 2  # once as it is, once recorded
    assert [graph.num_replays for graph in graphs] == [5]


def test_replays_leave_batches_as_they_are(graphs: list[Graph]) -> None:
    computing = Computing()
    batches = [batch_of(number) for number in range(1, 5)]
    for number, batch in enumerate(batches):
        computing.replay(batch, "phase", seed=number)
    for number, batch in enumerate(batches, 1):
        assert torch.equal(sums(batch), sums(batch_of(number)))
    assert graphs[0].num_replays == 3


def test_a_new_phase_is_computed_and_recorded_anew(graphs: list[Graph]) -> None:
    factor = 1.0
    keys = RandomNumbers(ALONE)

    def compute(batch: Batch) -> Tensor:
        return factor * batch.boxes.sum() + keys.draw(torch.Size((2, 3))).sum()

    replay, result, expected = Replay(compute, keys, pytest.fail), [], []
    for number, phase in enumerate("aaabbba"):
        factor = {"a": 1.0, "b": 10.0}[phase]  # a Python number, which a recording keeps
        result.append(float(replay(batch_of(number), phase, seed=number)))
        fresh = RandomNumbers(ALONE)
        fresh.start(number)
        drawn = fresh.draw(torch.Size((2, 3))).sum()
        expected.append(float(factor * batch_of(number).boxes.sum() + drawn))
    assert result == expected
    assert [graph.num_replays for graph in graphs] == [2, 2]


def test_a_phase_may_draw_other_numbers_than_the_one_before(graphs: list[Graph]) -> None:
    keys = RandomNumbers(ALONE)
    shapes = [torch.Size((2, 3))]
    replay = Replay(lambda batch: [keys.draw(shape) for shape in shapes], keys, pytest.fail)
    for number, phase in enumerate("aaabbb"):
        if phase == "b":
            shapes = [torch.Size((2, 5)), torch.Size((2, 1))]
        listed = [one.tolist() for one in replay(batch_of(1), phase, seed=number)]
        fresh = RandomNumbers(ALONE)
        fresh.start(number)
        assert listed == [fresh.draw(shape).tolist() for shape in shapes]


@pytest.mark.parametrize("images", [1, 3])
def test_a_batch_of_another_shape_is_not_replayed_by_a_recording_of_this_one(
    graphs: list[Graph], images: int
) -> None:
    replayed, eager = Computing(), Computing()
    for number, size in enumerate([2, 2, 2, images, images, images, 2], 1):
        batch = batch_of(number, size)
        assert_equal(replayed.replay(batch, 0, seed=number), eager.eager(batch, seed=number))
    assert [graph.num_replays for graph in graphs] == [2, 2]


def test_what_cannot_be_recorded_is_computed_and_noted_once(graphs: list[Graph]) -> None:
    notes: list[str] = []

    def compute(batch: Batch) -> float:
        return batch.boxes.sum().item() + keys.draw(torch.Size((2, 3))).sum().item()

    keys = RandomNumbers(ALONE)
    replay = Replay(compute, keys, notes.append)
    for number in range(4):
        result = replay(batch_of(number), "phase", seed=number)
        fresh = RandomNumbers(ALONE)
        fresh.start(number)
        expected = batch_of(number).boxes.sum() + fresh.draw(torch.Size((2, 3))).sum()
        assert result == pytest.approx(float(expected))
    assert len(notes) == 1
    assert "they cannot be recorded as a CUDA graph" in notes[0]
    assert "operation not permitted" in notes[0]
    assert len(graphs) == 1


def test_the_stand_in_changes_nothing_before_its_first_replay() -> None:
    memory, graph = torch.ones(3), Graph()
    with record(graph, None, "thread_local"):
        memory.mul_(2)
        made = memory + 1
    assert memory.tolist() == [1, 1, 1]
    assert made.isnan().all()
    graph.replay()
    graph.replay()
    assert memory.tolist() == [4, 4, 4]
    assert made.tolist() == [5, 5, 5]


def made_training(folder: Path, name: str) -> Training:
    """A training of two epochs of four steps, whose learning rate differs from step to step."""
    settings = replace(
        QUICK,
        method=name,
        batch_size=1,
        image_size="64",
        optimisation=Optimisation(lr=2e-3, schedule="cosine", warm_up_steps=1),
    )
    settings = resolve_settings(settings)
    folder.mkdir()
    data, detector = drawn(folder / "data", BOXES), make_detector(settings, 3)
    output = TrainingOutput(folder / "run", pytest.fail)
    training, _ = make_training(settings, data, detector, ALONE, output)
    return training


def train_steps(training: Training) -> list[dict[str, float]]:
    """Train for all epochs. Returns the figures of each step."""
    figures = []
    for epoch in range(training.settings.epochs):
        training.method.begin_epoch(epoch, training.detector)
        for batch in training.loader.epoch(epoch):
            training.train_on(batch)
            figures.append(training.recorder.flush())
        training.method.end_epoch(epoch, is_warm_up=False)
    return figures


@pytest.mark.parametrize("name", sorted(METHODS.keys() - PAPER_METHODS | {"mend-paper"}))
def test_a_training_by_replayed_steps_equals_a_computed_one(
    name: str, tmp_path: Path, graphs: list[Graph]
) -> None:
    eager, replayed = (made_training(tmp_path / kind, name) for kind in ("eager", "replayed"))
    replayed.replay = Replay(replayed._compute, replayed.random_numbers, pytest.fail)
    expected, result = train_steps(eager), train_steps(replayed)
    assert sum(graph.num_replays for graph in graphs) >= 4  # of two epochs of four steps
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_equal(one, other)
    for key, value in state_of(eager).items():
        assert_same(state_of(replayed)[key], value)


def state_of(training: Training) -> dict[str, Any]:
    """What a training ends with: weights, their average, and what the method remembers."""
    return {
        **training.detector.network.state_dict(prefix="network."),
        **training.teacher.network.state_dict(prefix="average."),
        **training.method.state_dict(),
    }


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
