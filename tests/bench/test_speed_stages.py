"""Which stage the work of a step belongs to."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boxmend.bench.speed.stages import (
    STAGES,
    Span,
    assign_work_to_launches,
    measure_stage_shares,
    sum_by_stage,
)
from boxmend.errors import BoxmendError
from boxmend.runs.settings import TrainSettings
from tests.bench.timed_trainings import factory_in

pytestmark = pytest.mark.usefixtures("one_thread")


def test_work_belongs_to_the_stage_in_which_it_starts() -> None:
    spans = [Span("features", 0, 10), Span("refine", 20, 30)]
    work = [Span("", 0, 4), Span("", 9, 12), Span("", 20, 21)]
    assert sum_by_stage(spans, work) == {"features": 7, "refine": 1}  # 4 + 3; 1


def test_work_between_stages_is_assigned_by_the_following_stage() -> None:
    spans = [
        Span("second stage and its losses", 0, 10),
        Span("second stage and its losses", 12, 20),
        Span("optimizer", 50, 60),
        Span("recording", 65, 70),
        Span("features", 80, 90),
    ]
    work = [
        Span("", 11, 12),  # between two of a stage: of that stage
        Span("", 20, 45),  # at the end of a span is after it
        Span("", 60, 64),
        Span("", 70, 75),
        Span("", 95, 96),  # after all
    ]
    assert sum_by_stage(spans, work) == {
        "second stage and its losses": 1,
        "backward": 25,
        "average of the weights": 4,
        "loading": 5,
        "rest": 1,
    }


def test_work_before_all_stages_is_known_likewise() -> None:
    assert sum_by_stage([Span("features", 5, 6)], [Span("", 0, 2)]) == {"loading": 2}
    assert sum_by_stage([Span("refine", 5, 6)], [Span("", 0, 2)]) == {"rest": 2}


def event(name: str, kind: str, number: int, start: float, end: float) -> Any:
    """An event of a profile: a call on the host (CPU), or work on the device (CUDA)."""
    return SimpleNamespace(
        name=name,
        device_type=SimpleNamespace(name=kind),
        id=number,
        time_range=SimpleNamespace(start=start, end=end),
        is_user_annotation=name.startswith("boxmend: "),
    )


def test_a_kernel_belongs_to_the_stage_that_launched_it() -> None:
    events = [
        event("boxmend: features", "CPU", 1, 0, 10),
        event("cudaLaunchKernel", "CPU", 5, 3, 4),
        event("cuLaunchKernelEx", "CPU", 6, 9, 10),
        event("boxmend: optimizer", "CPU", 2, 20, 30),
        event("cudaLaunchKernel", "CPU", 7, 15, 16),  # from the thread of the backward pass
        event("aten::relu", "CPU", 7, 21, 24),  # an operation; these have their own numbers
        event("boxmend: features", "CUDA", 5, 40, 90),  # shows where kernels ran, and is none
        event("a kernel", "CUDA", 5, 40, 60),
        event("a kernel of ours", "CUDA", 6, 60, 90),
        event("a kernel of the backward pass", "CUDA", 7, 90, 150),
        event("a kernel launched before", "CUDA", 99, 1, 2),
    ]
    spans, work = assign_work_to_launches(events)
    assert spans == [Span("features", 0, 10), Span("optimizer", 20, 30)]
    assert work == [
        Span("a kernel", 3, 23),
        Span("a kernel of ours", 9, 39),
        Span("a kernel of the backward pass", 15, 75),
    ]
    assert sum_by_stage(spans, work) == {"features": 50, "backward": 60}  # 20 + 30; 60


def test_a_profile_without_kernels_is_refused() -> None:
    with pytest.raises(BoxmendError, match="CUPTI"):
        assign_work_to_launches([event("boxmend: features", "CPU", 1, 0, 10)])


@pytest.mark.parametrize("row", ["baseline", "mend-paper", "mend"])
def test_stages_are_those_of_steps_that_are_launched_kernel_by_kernel(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = factory_in(tmp_path)
    asked: list[bool] = []

    def training(settings: TrainSettings) -> None:
        asked.append(settings.cuda_graph)
        raise BoxmendError("seen")

    monkeypatch.setattr(factory, "training", training)
    with pytest.raises(BoxmendError, match="seen"):
        measure_stage_shares(factory, row, "64")
    assert asked == [False]


def test_the_shares_of_a_step_add_up_to_one(tmp_path: Path) -> None:
    factory = factory_in(tmp_path)
    shares = measure_stage_shares(factory, "mend", "64")
    assert tuple(shares) == STAGES
    assert sum(shares.values()) == pytest.approx(1)
    assert all(share >= 0 for share in shares.values())
    for stage in ("features", "rpn and proposals", "refine", "backward", "optimizer"):
        assert shares[stage] > 0
    assert shares["average of the weights"] > 0


def test_a_watched_training_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boxmend.bench.speed import stages
    from boxmend.bench.speed.timed_training import TrainingSteps

    made: list[TrainingSteps] = []

    class Kept(TrainingSteps):
        def __init__(self, training: object):
            super().__init__(training)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(stages, "TrainingSteps", Kept)
    measure_stage_shares(factory_in(tmp_path), "baseline", "64")
    (steps,) = made
    for call in stages.STAGE_OF_CALL:
        part, name = call.split(".")
        assert name not in vars(getattr(steps.training, part)), call
