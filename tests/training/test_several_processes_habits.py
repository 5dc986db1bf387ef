"""How processes that train together exchange, refuse, stop and go on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from boxmend.errors import OutputError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs import ledger
from boxmend.training.processes import (
    VARIABLES,
    OthersLostError,
    _reason,
    _write_reason,
    is_rank_zero,
    join_processes,
    rank_from_env,
)
from boxmend.training.train import train
from tests.training.several_processes import CASES, in_double, noisy_toys, run_case, together


@pytest.fixture(scope="module")
def habits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes leave behind that did all of `process_habits`."""
    folder = tmp_path_factory.mktemp("habits")
    noisy_toys(folder)
    for ended in together(["-m", "tests.training.process_habits", folder]):
        assert ended.returncode == 0, ended.stderr
    return folder


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "ledger").iterdir()}


def test_a_run_stopped_and_resumed_together_ends_as_if_it_had_not_been(habits: Path) -> None:
    whole, stopped = habits / "whole", habits / "stopped"
    assert contents(whole) == contents(stopped)
    one, two = (load_file(run / "model.safetensors") for run in (whole, stopped))
    assert all(torch.equal(one[key], two[key]) for key in one)
    steps = [
        [line["step"] for line in runs.open_run(run).read_metrics()] for run in (whole, stopped)
    ]
    assert set(steps[0]) <= set(steps[1])


def test_a_run_whose_disk_was_full_continues_to_the_same_end(habits: Path) -> None:
    with pytest.raises(OutputError, match="finished"):
        train([str(habits / "noisy")], habits / "full", CASES["baseline"], resume=True)
    assert contents(habits / "full") == contents(habits / "whole")
    train([str(habits / "noisy")], habits / "parted", CASES["baseline"], resume=True)


def test_torchrun_gets_the_message_of_the_process_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    _write_reason(OthersLostError("lost the others"))
    _write_reason(KeyboardInterrupt())
    assert not any(tmp_path.iterdir())
    _write_reason(OutputError("the disk is full"))
    failure = ProcessFailure(0, 1, 3, str(tmp_path / "error.json"))
    summary = str(ChildFailedError("boxmend", {0: failure}))
    assert "boxmend: the disk is full" in summary
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "missing" / "error.json"))
    _write_reason(OutputError("nowhere to write"))  # the error itself is what counts


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            "[/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error "
            "[127.0.0.1]:1451: Connection reset by peer. This is typically caused by a remote "
            "worker hanging. GLHF!",
            "Read error [127.0.0.1]:1451: Connection reset by peer",
        ),
        ("Connection closed by peer [::1]:99\nmore", "Connection closed by peer [::1]:99"),
        ("", "RuntimeError"),
    ],
)
def test_a_message_of_gloo_is_cut_to_the_reason(error: str, reason: str) -> None:
    assert _reason(RuntimeError(error)) == reason


def test_one_process_continues_where_two_were_stopped(habits: Path) -> None:
    torch.set_num_threads(1)
    noisy = str(habits / "noisy")
    with in_double():
        train([noisy], habits / "handed-over", CASES["mend-paper"], resume=True)
    (habits / "alone").mkdir()
    run_case("mend-paper", habits / "alone")
    one, two = habits / "alone" / "mend-paper", habits / "handed-over"
    tables = [ledger.read(run).to_pydict() for run in (one, two)]
    assert tables[0]["verdict"] == tables[1]["verdict"]
    np.testing.assert_allclose(tables[0]["loss"], tables[1]["loss"], rtol=1e-5)
    weights = [load_file(run / "model.safetensors") for run in (one, two)]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-7)
    document = runs.open_run(two)
    assert document.facts()["processes"] == 2
    assert '"processes": 1' in (two / "run.json").read_text()  # where it was resumed on


def test_a_run_that_was_refused_or_blew_up_is_not_finished(habits: Path) -> None:
    assert not (habits / "refused").exists()
    assert [path.name for path in (habits / "taken").iterdir()] == ["thesis.txt"]
    assert not runs.open_run(habits / "blown-up").is_finished


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What torchrun tells the second of three processes."""
    for name, value in zip(VARIABLES, ("1", "3", "127.0.0.1", "29500"), strict=True):
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_torchrun_says_which_process_this_is(surroundings: pytest.MonkeyPatch) -> None:
    assert rank_from_env() == (1, 3)
    assert not is_rank_zero()
    surroundings.setenv("RANK", "0")
    assert is_rank_zero()


@pytest.mark.parametrize("name", VARIABLES)
def test_without_the_variables_of_torchrun_a_process_is_alone(
    name: str, surroundings: pytest.MonkeyPatch
) -> None:
    surroundings.delenv(name)
    assert rank_from_env() is None
    assert is_rank_zero()
    with join_processes() as processes:
        assert processes.is_single_process
        assert processes.is_rank_zero


def test_one_of_one_is_alone(surroundings: pytest.MonkeyPatch) -> None:
    surroundings.setenv("RANK", "0")
    surroundings.setenv("WORLD_SIZE", "1")
    assert rank_from_env() is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RANK", "first", "RANK is 'first'"),
        ("RANK", "3", "RANK is 3 and WORLD_SIZE 3"),
        ("WORLD_SIZE", "-2", "WORLD_SIZE is '-2'"),
        ("WORLD_SIZE", "", "WORLD_SIZE is ''"),
    ],
)
def test_the_message_names_an_invalid_environment_variable(
    name: str, value: str, words: str, surroundings: pytest.MonkeyPatch
) -> None:
    surroundings.setenv(name, value)
    with pytest.raises(UsageError, match=words):
        rank_from_env()
