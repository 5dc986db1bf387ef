"""Trackers, with stand-ins for the packages, which are not among the requirements."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from boxmend.errors import UsageError
from boxmend.training.trackers import TRACKERS, follow, mlflow, tensorboard, wandb

LINES: list[dict[str, Any]] = [
    {"plan": {"steps": 4}},
    {"note": "an image is unreadable"},
    {"step": 2, "epoch": 0, "loss": 1.5, "seconds_left": 3, "epoch_ends": 0},
    {"step": 4, "epoch": 0, "loss": 0.5, "best_step": None},
    {"summary": {"steps": 4, "val": {"voc_ap50_area": 0.25}}},
]
FIRST = {"epoch": 0.0, "loss": 1.5, "seconds_left": 3.0}
SECOND = {"epoch": 0.0, "loss": 0.5}
FINAL = {"final_voc_ap50_area": 0.25}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "voc"
    folder.mkdir()
    (folder / "settings.json").write_text(
        json.dumps({"method": "mend", "mend": {"raw_box_share": 0.4}})
    )
    return folder


class Calls:
    """A stand-in for a package: it notes every call of every name."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any, dict[str, Any]]] = []

    def module(self, monkeypatch: pytest.MonkeyPatch, name: str, *functions: str) -> None:
        module = ModuleType(name)
        for function in functions:
            setattr(module, function, self.noting(function))
        monkeypatch.setitem(sys.modules, name, module)

    def noting(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.made.append((name, arguments, options))
            info = SimpleNamespace(run_id="m1")
            parts = ("add_scalar", "flush", "close", "log", "finish")
            return SimpleNamespace(
                id="w1", info=info, **{part: self.noting(part) for part in parts}
            )

        return call

    def of(self, name: str) -> list[tuple[Any, dict[str, Any]]]:
        return [(given, options) for one, given, options in self.made if one == name]


def test_tensorboard_gets_every_number(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    calls.module(monkeypatch, "torch.utils.tensorboard", "SummaryWriter")
    listen = tensorboard(run)
    for line in LINES:
        listen(line)
    assert calls.of("SummaryWriter") == [((str(run / "tensorboard"),), {"purge_step": 2})]
    assert [given for given, _ in calls.of("add_scalar")] == [
        *((name, value, 2) for name, value in FIRST.items()),
        *((name, value, 4) for name, value in SECOND.items()),
        *((name, value, 4) for name, value in FINAL.items()),
    ]
    assert len(calls.of("close")) == 1


def test_wandb_gets_every_number_and_continues_its_run(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    calls.module(monkeypatch, "wandb", "init")
    for _ in range(2):
        listen = wandb(run)
        for line in LINES:
            listen(line)
    (_, first), (_, second) = calls.of("init")
    assert (first["project"], first["name"], first["dir"]) == ("boxmend", "voc", str(run))
    assert first["config"] == {"method": "mend", "mend": {"raw_box_share": 0.4}}
    assert (first["id"], first["resume"]) == (None, None)
    assert (second["id"], second["resume"]) == ("w1", "allow")
    expected = [((FIRST,), {"step": 2}), ((SECOND,), {"step": 4}), ((FINAL,), {"step": 4})]
    assert calls.of("log") == expected * 2
    assert len(calls.of("finish")) == 2


def test_mlflow_gets_every_number_and_continues_its_run(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    calls.module(monkeypatch, "mlflow", "start_run", "log_params", "log_metrics", "end_run")
    for _ in range(2):
        listen = mlflow(run)
        for line in LINES:
            listen(line)
    assert [options for _, options in calls.of("start_run")] == [
        {"run_id": None, "run_name": "voc"},
        {"run_id": "m1", "run_name": None},
    ]
    assert calls.of("log_params") == [(({"method": "mend", "mend.raw_box_share": 0.4},), {})]
    expected = [((FIRST,), {"step": 2}), ((SECOND,), {"step": 4}), ((FINAL,), {"step": 4})]
    assert calls.of("log_metrics") == expected * 2
    assert len(calls.of("end_run")) == 2


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")],
)
def test_a_missing_package_is_reported_with_its_install_command_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    with pytest.raises(UsageError, match=f"{name} is not installed.*: pip install {name}$"):
        follow([name], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'paper'; known: mlflow, tensorboard, wandb"):
        follow(["paper"], tmp_path)


def test_a_tracker_that_fails_is_left_out_and_the_others_hear_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records: list[object] = []

    def fails(line: dict[str, Any]) -> None:
        records.append("broken")
        raise ConnectionError("the server is down")

    monkeypatch.setitem(TRACKERS, "wandb", lambda run: fails)
    monkeypatch.setitem(TRACKERS, "mlflow", lambda run: records.append)
    listen = follow(["wandb", "mlflow"], tmp_path)
    listen({"step": 1})
    listen({"step": 2})
    assert records == ["broken", {"step": 1}, {"step": 2}]
    assert [record.getMessage() for record in caplog.records] == [
        "wandb failed and gets no more lines of this run: the server is down"
    ]


def test_the_real_tensorboard_takes_the_lines(run: Path) -> None:
    pytest.importorskip("tensorboard")
    listen = tensorboard(run)
    for line in LINES:
        listen(line)
    assert list((run / "tensorboard").iterdir())
