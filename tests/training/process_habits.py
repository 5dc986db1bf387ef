"""One of two processes of `test_several_processes_habits`."""

import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from boxmend.errors import DataError, OutputError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs import metrics as metric_lines
from boxmend.runs.settings import PublishedSettings
from boxmend.training import processes
from boxmend.training.loop import Training
from boxmend.training.processes import OthersLostError, Processes, join_processes
from boxmend.training.train import Interrupted, train
from tests.training.several_processes import CASES, after_each_step, in_double

RANK = int(os.environ["RANK"])
FOLDER = Path(sys.argv[1])
NOISY = [str(FOLDER / "noisy")]
BASELINE = CASES["baseline"]


def exchange() -> None:
    """All kinds of exchange, by numbers worked out by hand."""
    processes.BUCKET_NUMBERS = 3
    with join_processes() as both:
        assert (both.rank, both.world_size, both.local_world_size, both.is_rank_zero) == (
            RANK,
            2,
            2,
            RANK == 0,
        )
        rows = torch.tensor([RANK, 10 + RANK])
        masks = torch.tensor([[True, RANK == 1], [False, False]])
        doubles = torch.tensor([0.1, RANK / 3], dtype=torch.float64)
        joined_rows, joined_masks, joined_doubles = both.all_gather(rows, masks, doubles)
        assert joined_rows.tolist() == [0, 10, 1, 11]
        assert joined_masks.tolist() == [[True, False], [False] * 2, [True, True], [False] * 2]
        assert joined_doubles.tolist() == [0.1, 0.0, 0.1, 1 / 3]
        assert rows.tolist() == [RANK, 10 + RANK]
        number = torch.tensor(3 + RANK)
        assert both.all_sum(number) == 7
        assert number == 3 + RANK
        gradients = [torch.full(shape, 1.0 + RANK) for shape in ((2,), (), (2, 2), (1,))]
        gradients.append(torch.full((2,), 0.5, dtype=torch.float64))
        both.sum_gradients(gradients)
        assert all(bool((gradient == 3).all()) for gradient in gradients[:4])
        assert gradients[4].tolist() == [1, 1]
        assert both.any(RANK == 1)
        assert not both.any(False)
        assert both.gather_objects({"rank": RANK}) == [{"rank": 0}, {"rank": 1}]
        assert both.on_rank_zero(lambda: 40 + RANK) == 40
        for kind in (UsageError, DataError):
            with pytest.raises(kind, match=r"^of process 0$"):
                both.on_rank_zero(lambda kind=kind: fail(kind))  # type: ignore[misc]
        alike_and_not(both)


def fail(kind: Callable[[str], Exception]) -> None:
    raise kind(f"of process {RANK}")


def alike_and_not(both: Processes) -> None:
    both.ensure_equal({"seed": "1"}, "")
    with pytest.raises(UsageError, match=r"process 1 and process 0 differ in size; start again"):
        both.ensure_equal({"seed": "1", "size": str(RANK)}, "start again")


def refuse() -> None:
    """What cannot be done together is refused by all alike, and leaves no folder."""
    for settings, words in (
        (replace(BASELINE, batch_size=3), "--batch-size 3 counts the images of all 2 processes"),
        (replace(BASELINE, seed=RANK), "process 1 and process 0 differ in seed"),
        (
            replace(BASELINE, method="lr", published=PublishedSettings(granularity="object")),
            "--published.granularity object",
        ),
    ):
        with pytest.raises(UsageError, match=words):
            train(NOISY, FOLDER / "refused", settings)
    assert not (FOLDER / "refused").exists()
    with pytest.raises(
        UsageError, match="a batch of 15 images cannot be divided equally among 2 processes"
    ):
        train(NOISY, FOLDER / "too-few", replace(BASELINE, batch_size=20))
    (FOLDER / "taken").mkdir(exist_ok=True)
    (FOLDER / "taken" / "thesis.txt").touch()
    with pytest.raises(OutputError, match=r"thesis\.txt"):
        train(NOISY, FOLDER / "taken", BASELINE)


def stop() -> None:
    """A signal to one of them makes all save after the same step and leave."""
    train(NOISY, FOLDER / "whole", BASELINE)

    def ask(training: Training) -> None:
        if RANK == 1 and training.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with after_each_step(ask), pytest.raises(Interrupted, match="stopped at step 4"):
        train(NOISY, FOLDER / "stopped", BASELINE)
    assert not runs.open_run(FOLDER / "stopped").is_finished
    train(NOISY, FOLDER / "stopped", BASELINE, resume=True)


def stop_for_one() -> None:
    """Leave a run that a single process can continue."""

    def ask(training: Training) -> None:
        if RANK == 0 and training.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    with in_double(), after_each_step(ask), pytest.raises(Interrupted):
        train(NOISY, FOLDER / "handed-over", CASES["mend-paper"])


def score() -> None:
    """Process 0 scores every epoch while the others wait, and all end when it has written."""
    settings = replace(BASELINE, epochs=2, keep_best=True)
    messages: list[str] = []
    run = train(
        NOISY,
        FOLDER / "scored",
        settings,
        val=[f"{FOLDER / 'toys'}:val"],
        log=lambda line: messages.extend(line),
    )
    assert run.is_finished
    assert run.summary()["best_step"] in (3, 6)
    assert ("summary" in messages) == (RANK == 0)
    assert (messages == []) == (RANK == 1)


def blow_up() -> None:
    """A loss that is not finite in one of them ends all, with the images of the whole batch."""

    def spoil(training: Training) -> None:
        if RANK == 1:
            training.recorder.pending[-1].figures["loss"].fill_(torch.nan)

    with after_each_step(spoil), pytest.raises(DataError, match="not finite at step 0") as caught:
        train(NOISY, FOLDER / "blown-up", BASELINE)
    assert str(caught.value).count(".png") == BASELINE.batch_size


def fill_disk() -> None:
    """A checkpoint that process 0 cannot write ends all with the same message."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    if RANK == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
    words = r"checkpoint\.pt: could not be written \(File too large\).*--resume"
    with pytest.raises(OutputError, match=words):
        train(NOISY, FOLDER / "full", BASELINE)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    train(NOISY, FOLDER / "full", BASELINE, resume=True)


def leave_when_asked() -> None:
    """SIGTERM outside the loop, as torchrun sends it, ends a process with a message."""
    with join_processes() as both:
        with pytest.raises(OthersLostError, match=r"process \d of 2 received SIGTERM.*--resume"):
            os.kill(os.getpid(), signal.SIGTERM)
        assert both.any(RANK == 0)


def part_ways() -> None:
    """A line of metrics that process 0 cannot write ends it, and then process 1; comes last."""
    append = metric_lines.append

    def fail_at_step_4(path: Path, line: bytes) -> None:
        if b'"step": 4' in line:
            raise OutputError(f"{path}: could not be written (the disk is full)")
        append(path, line)

    error, message = (
        (OutputError, "the disk is full")
        if RANK == 0
        else (OthersLostError, "process 1 of 2 lost the others")
    )
    with (
        patch.object(metric_lines, "append", fail_at_step_4),
        pytest.raises(error, match=rf"{message}.*--resume to continue"),
    ):
        train(NOISY, FOLDER / "parted", BASELINE)


if __name__ == "__main__":
    torch.set_num_threads(1)
    tasks = (exchange, refuse, stop, stop_for_one, score, blow_up, fill_disk, leave_when_asked)
    for task in (*tasks, part_ways):
        task()
