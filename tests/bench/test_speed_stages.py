"""Which stage the work of a step belongs to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from speed_shops import shop_in

from boxmend.bench.speed.stages import STAGES, Span, attributed, stage_shares


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more would wait for one another on so small images
    yield
    torch.set_num_threads(threads)


def test_work_belongs_to_the_stage_in_which_it_starts() -> None:
    spans = [Span("features", 0, 10), Span("refine", 20, 30)]
    work = [Span("", 0, 4), Span("", 9, 12), Span("", 20, 21)]
    assert attributed(spans, work) == {"features": 7, "refine": 1}  # 4 + 3; 1


def test_work_between_stages_is_known_by_what_follows() -> None:
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
    assert attributed(spans, work) == {
        "second stage and its losses": 1,
        "backward": 25,
        "average of the weights": 4,
        "loading": 5,
        "rest": 1,
    }


def test_work_before_all_stages_is_known_likewise() -> None:
    assert attributed([Span("features", 5, 6)], [Span("", 0, 2)]) == {"loading": 2}
    assert attributed([Span("refine", 5, 6)], [Span("", 0, 2)]) == {"rest": 2}


def test_the_shares_of_a_step_add_up_to_one(tmp_path: Path) -> None:
    shop = shop_in(tmp_path)
    shares = stage_shares(shop, "mend", "64")
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
    from boxmend.bench.speed.workshop import TrainingSteps

    made: list[TrainingSteps] = []

    class Kept(TrainingSteps):
        def __init__(self, training: object):
            super().__init__(training)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(stages, "TrainingSteps", Kept)
    stage_shares(shop_in(tmp_path), "baseline", "64")
    (steps,) = made
    for call in stages.CALLS:
        part, name = call.split(".")
        assert name not in vars(getattr(steps.training, part)), call
