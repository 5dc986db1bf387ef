"""Resuming where nothing, or not enough, was saved: the run starts again and ends the same."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.errors import DataError, OutputError
from boxmend.runs.folder import Run, open_run
from boxmend.runs.ledger import Ledger
from boxmend.training.train import Interrupted, train
from tests.training.small_runs import QUICK, Box, drawn, trained

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES: list[tuple[int, Box]] = [(row, (10.0, 20.0, 60.0 + row, 70.0)) for row in range(4)]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


def stopped(dataset: Dataset, out: Path, step: int = 3) -> None:
    """Leave a run unfinished, with a checkpoint at `step` of four."""

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(dataset, out, QUICK, log=stop)
    assert (out / "checkpoint.pt").exists()


def nothing_yet(dataset: Dataset, out: Path) -> None:
    assert not out.exists()


def an_empty_folder(dataset: Dataset, out: Path) -> None:
    out.mkdir()


def killed_as_it_began(dataset: Dataset, out: Path) -> None:
    stopped(dataset, out)
    for path in out.iterdir():
        if path.name != "run.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (out / ".settings.json.boxmend-partial").write_bytes(b'{"met')


def killed_before_the_first_checkpoint(dataset: Dataset, out: Path) -> None:
    stopped(dataset, out)
    (out / "checkpoint.pt").unlink()
    (out / ".checkpoint.pt.boxmend-partial").write_bytes(b"half of one")
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "lo')  # a line torn off


@pytest.mark.parametrize(
    "left",
    [nothing_yet, an_empty_folder, killed_as_it_began, killed_before_the_first_checkpoint],
)
def test_resuming_where_nothing_was_saved_simply_starts(
    left: Callable[[Dataset, Path], None], dataset: Dataset, tmp_path: Path
) -> None:
    whole, _ = trained(dataset, tmp_path / "whole")
    left(dataset, tmp_path / "run")
    run, _ = trained(dataset, tmp_path / "run", resume=True)
    assert run.is_finished
    assert same_ledger_and_weights(run, whole)
    assert [line["step"] for line in run.read_metrics()] == [
        line["step"] for line in whole.read_metrics()
    ]
    remains = {path.name for path in run.path.iterdir()}
    assert remains == {path.name for path in whole.path.iterdir()}


def same_ledger_and_weights(run: Run, other: Run) -> bool:
    ledgers = [
        {path.name: path.read_bytes() for path in (one.path / "ledger").iterdir()}
        for one in (run, other)
    ]
    first, second = (load_file(one.path / "model.safetensors") for one in (run, other))
    assert first.keys() == second.keys()
    return ledgers[0] == ledgers[1] and all(first[key].equal(second[key]) for key in first)


def test_the_message_names_a_missing_part_of_the_ledger(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = Ledger.resume
    monkeypatch.setattr(  # parts of two rows, so that there are some after a few steps
        Ledger, "resume", lambda run, state: resume(run, state, rows_per_part=2)
    )
    stopped(dataset, tmp_path / "run")
    part = tmp_path / "run" / "ledger" / "part-000001.parquet"
    content = part.read_bytes()
    part.unlink()
    with pytest.raises(DataError, match=r"part-000001\.parquet: is missing"):
        trained(dataset, tmp_path / "run", resume=True)
    part.write_bytes(content)
    whole, _ = trained(dataset, tmp_path / "whole")
    run, _ = trained(dataset, tmp_path / "run", resume=True)
    assert same_ledger_and_weights(run, whole)


def test_an_unfinished_run_is_not_begun_anew_unasked(dataset: Dataset, tmp_path: Path) -> None:
    stopped(dataset, tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    with pytest.raises(OutputError, match="continue it with --resume"):
        trained(dataset, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before


def test_a_folder_of_other_things_is_not_trained_into(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(OutputError, match=r"thesis\.txt"):
            trained(dataset, tmp_path / "run", resume=resume)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_command_saves_and_continues_later(
    number: signal.Signals, tmp_path: Path
) -> None:
    boxmend.synthesize(tmp_path / "toys", images=20, seed=4)
    command = [sys.executable, "-m", "boxmend", "train", f"{tmp_path / 'toys'}:train"]
    command += ["--detector", "tiny", "--weights", "none", "--image-size", "96"]
    command += ["--epochs", "3", "--batch-size", "4", "--log-every", "1"]
    command += ["--checkpoint-every", "100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = tmp_path / "run"
    with subprocess.Popen(
        [*command, "--out", str(out)], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        while "step 2" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 3
    assert "continue with --resume" in rest
    assert "Traceback" not in rest
    assert (out / "checkpoint.pt").exists()
    assert not open_run(out).is_finished
    for extra in (["--out", str(out), "--resume"], ["--out", str(tmp_path / "whole")]):
        subprocess.run([*command, *extra], env=environment, check=True, capture_output=True)
    assert same_ledger_and_weights(open_run(out), open_run(tmp_path / "whole"))


def test_a_run_resumed_after_its_last_step_only_finishes(dataset: Dataset, tmp_path: Path) -> None:
    """Killed between the last checkpoint and the final weights."""
    whole, _ = trained(dataset, tmp_path / "whole")
    stopped(dataset, tmp_path / "run", step=4)
    run, _ = trained(dataset, tmp_path / "run", resume=True)
    assert run.is_finished
    assert same_ledger_and_weights(run, whole)
