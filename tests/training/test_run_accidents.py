"""What may go wrong around a training: memory, listeners, a second process."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.errors import BoxmendError, DataError, OutputError
from boxmend.runs import folder as runs
from boxmend.training.loop import Training
from boxmend.training.train import Interrupted, train
from tests.training.small_runs import QUICK, drawn, trained

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES = [(row, (10.0 + row, 20.0, 60.0, 70.0)) for row in (0, 1, 1, 2, 3, 3)]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 400000000000 bytes. Error code 12"
        ),
    ],
)
def test_out_of_memory_says_what_to_lower(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def step(self: Training, batch: object) -> None:
        raise error

    monkeypatch.setattr(Training, "train_on", step)
    with pytest.raises(BoxmendError, match="out of memory") as caught:
        train(data, tmp_path / "run", QUICK)
    for part in ("--batch-size 2", "--image-size 96", "--proposals 150", "--rois 40", "lower"):
        assert part in str(caught.value)


def test_the_message_of_torch_on_a_cpu_is_recognised(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "train_on", lambda self, batch: torch.empty(2**60))
    with pytest.raises(BoxmendError, match="out of memory"):
        train(data, tmp_path / "run", QUICK)


def test_another_error_of_torch_stays_what_it_is(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "train_on", lambda self, batch: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        train(data, tmp_path / "run", QUICK)


def parts_of(run: Path) -> dict[str, bytes]:
    parts = {path.name: path.read_bytes() for path in (run / "ledger").iterdir()}
    assert parts
    return parts


@pytest.mark.parametrize("at", [0, 2, 3, 4, 7, 8])  # the plan, steps, ends of passes
def test_a_listener_that_raises_leaves_a_run_that_continues_to_the_same_end(
    data: Dataset, tmp_path: Path, at: int
) -> None:
    whole, log = trained(data, tmp_path / "whole", checkpoint_every=1)
    assert len(log) > at
    records: list[object] = []

    def listen(line: dict[str, Any]) -> None:
        records.append(line)
        if len(records) > at:
            raise ZeroDivisionError

    settings = replace(QUICK, checkpoint_every=1)
    with pytest.raises(ZeroDivisionError):
        train(data, tmp_path / "run", settings, log=listen)
    run = train(data, tmp_path / "run", settings, resume=True)
    one, other = (load_file(path / "model.safetensors") for path in (whole.path, run.path))
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert parts_of(run.path) == parts_of(whole.path)
    assert [x["loss"] for x in run.read_metrics() if "loss" in x] == [
        x["loss"] for x in whole.read_metrics() if "loss" in x
    ]


def test_a_listener_that_raises_at_the_very_end_finds_the_run_finished(
    data: Dataset, tmp_path: Path
) -> None:
    def listen(line: dict[str, Any]) -> None:
        if "summary" in line:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(data, tmp_path / "run", QUICK, log=listen)
    assert runs.open_run(tmp_path / "run").is_finished


def test_a_run_stopped_after_the_last_step_of_an_epoch_still_ends_that_epoch(
    data: Dataset, tmp_path: Path
) -> None:
    whole, _ = trained(data, tmp_path / "whole")

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 2:  # passes have two steps
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="step 2"):
        train(data, tmp_path / "run", QUICK, log=stop)
    run = train(data, tmp_path / "run", QUICK, resume=True)
    rates = [[x["label_noise"] for x in one.read_metrics() if "tau" in x] for one in (whole, run)]
    assert len(rates[0]) == 2
    assert rates[0] == rates[1]


@pytest.mark.parametrize("is_val", [False, True])
def test_data_that_changed_since_they_were_read_begin_no_run(
    data: Dataset, tmp_path: Path, is_val: bool
) -> None:
    for name in ("train", "val"):
        data.save(tmp_path / name, format="coco")
    train_data, val = (load(tmp_path / name) for name in ("train", "val"))
    (path,) = (tmp_path / ("val" if is_val else "train")).rglob("*.json")
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    with pytest.raises(DataError, match=f"{path.name}: changed after"):
        train(train_data, tmp_path / "run", QUICK, val=val)
    assert not (tmp_path / "run").exists()
    path.write_bytes(content)
    assert train(train_data, tmp_path / "run", QUICK, val=val).is_finished


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond this, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_says_how_to_continue_and_loses_nothing(data: Dataset, tmp_path: Path) -> None:
    whole, _ = trained(data, tmp_path / "whole")
    with (
        largest_file(100_000),
        pytest.raises(OutputError, match=r"checkpoint\.pt: could not be .*--resume to continue"),
    ):
        trained(data, tmp_path / "run")
    run, _ = trained(data, tmp_path / "run", resume=True)
    assert parts_of(run.path) == parts_of(whole.path)
    model = "model.safetensors"
    assert (run.path / model).read_bytes() == (whole.path / model).read_bytes()


LOCKER = """
import sys, time
from boxmend.runs.folder import sole_writer
with sole_writer(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_do_not_write_into_one_run(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(out)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(OutputError, match="another process is writing into this run"):
            train(data, out, QUICK, resume=True)
    finally:
        process.kill()
        process.communicate()
    run = train(data, out, QUICK, resume=True)  # the lock went with the process
    assert run.is_finished
    assert not (out / runs.LOCK_FILE).exists()


def test_a_folder_of_other_things_gets_no_lock(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with (
        pytest.raises(OutputError, match=r"not the folder of a run, and not empty \(notes\.txt\)"),
        runs.sole_writer(tmp_path),
    ):
        raise AssertionError("it was let in")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
