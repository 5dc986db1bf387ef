"""A killed worker ends the whole job soon, and the whole goes on with --resume."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from boxmend.runs.folder import open_run
from tests.training.several_processes import noisy_toys

pytestmark = pytest.mark.slow

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    noisy_toys(folder)
    return folder / "noisy"


def command(
    noisy: Path, out: Path, *more: str, launcher: tuple[str, ...] = (), every: int = 2
) -> list[str]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *launcher]
    train = ["-m", "boxmend", "train", str(noisy), "--out", str(out), "--method", "mend-paper"]
    options = ["--detector", "tiny", "--weights", "none", "--image-size", "96", "--epochs", "8"]
    steps = ["--batch-size", "4", "--log-every", "1", "--checkpoint-every", str(every)]
    return [sys.executable, *torchrun, *train, *options, *steps, *more]


@pytest.fixture(scope="module")
def whole(noisy: Path) -> Path:
    out = noisy.parent / "whole"
    ended = subprocess.run(command(noisy, out), env=ENVIRONMENT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(str(out)) == 0  # one process names the run, on stderr
    assert ended.stderr.count("the run is") == 1
    return out


def until_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and f'"step": {step}' in metrics.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def workers_of(process: subprocess.Popen[str]) -> Iterator[tuple[int, int]]:
    """Rank and process id of each worker of a torchrun."""
    for folder in Path("/proc").iterdir():
        try:
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        ranks = [variable for variable in variables if variable.startswith(b"RANK=")]
        if parent == str(process.pid) and ranks:
            yield int(ranks[0][5:]), int(folder.name)


def rest_of(process: subprocess.Popen[str]) -> str:
    """Return the output of a torchrun; kill a hanging one with its workers and fail."""
    try:
        return process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        for _, worker in workers_of(process):
            os.kill(worker, signal.SIGKILL)
        process.kill()
        raise


def same(run: Path, whole: Path) -> bool:
    ledgers = [
        {path.name: path.read_bytes() for path in (one / "ledger").iterdir()}
        for one in (run, whole)
    ]
    first, second = (load_file(one / "model.safetensors") for one in (run, whole))
    return ledgers[0] == ledgers[1] and all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_ends_the_job_which_continues_to_the_same_end(
    rank: int, noisy: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with subprocess.Popen(
        command(noisy, out, "--resume"),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_step(out, 5, process)
        os.kill(dict(workers_of(process))[rank], signal.SIGKILL)
        killed = time.monotonic()
        output = rest_of(process)
    assert process.returncode != 0
    assert time.monotonic() - killed < 45  # torchrun gives the others 30 s
    assert f"process {1 - rank} of 2 lost the others" in output
    assert "--resume to continue from the last checkpoint" in output
    assert "third_party" not in output  # gloo's sources
    assert "boxmend/training" not in output  # torchrun has a traceback of its own; we have none
    assert not open_run(out).is_finished
    subprocess.run(command(noisy, out, "--resume"), env=ENVIRONMENT, check=True)
    assert same(out, whole), output


def test_a_full_disk_ends_the_job_which_continues_to_the_same_end(
    noisy: Path, whole: Path, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk; it is inherited by the workers."""
    out = tmp_path / "run"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))

    ended = subprocess.run(
        command(noisy, out), env=ENVIRONMENT, capture_output=True, text=True, preexec_fn=limit
    )
    assert ended.returncode != 0
    line = f"boxmend: {out / 'checkpoint.pt'}: could not be written (File too large). "
    assert ended.stderr.count(line) == 4  # by each process, and by torchrun of each
    assert "--resume to continue from the last checkpoint" in ended.stderr
    subprocess.run(command(noisy, out, "--resume"), env=ENVIRONMENT, check=True)
    assert same(out, whole), ended.stderr


def test_torchrun_itself_can_start_them_again(noisy: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with subprocess.Popen(
        command(noisy, out, "--resume", launcher=("--max-restarts", "1")),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_step(out, 5, process)
        os.kill(dict(workers_of(process))[1], signal.SIGKILL)
        output = rest_of(process)
    assert process.returncode == 0, output
    assert same(out, whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_torchrun_leaves_a_run_that_can_continue(
    number: signal.Signals, noisy: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with subprocess.Popen(
        command(noisy, out, every=100000),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_step(out, 4, process)  # within the second epoch; only its end would save
        process.send_signal(number)
        output = rest_of(process)
    assert process.returncode != 0
    assert output.count("continue with --resume") == 2
    assert (out / "checkpoint.pt").exists()
    again = command(noisy, out, "--resume", every=100000)
    subprocess.run(again, env=ENVIRONMENT, check=True)
    assert same(out, whole)
