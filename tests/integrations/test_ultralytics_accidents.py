"""Usual mistakes and rare paths of a mended YOLO training; skipped without Ultralytics."""

import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import boxmend
from boxmend.cli import run
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.integrations import ultralytics as mending

pytest.importorskip("ultralytics", reason="needs boxmend[ultralytics]")

from ultralytics import YOLO
from ultralytics import __version__ as ultralytics_version
from ultralytics.utils import DEFAULT_CFG_DICT
from ultralytics.utils.callbacks import get_default_callbacks

from boxmend.integrations.ultralytics import attaching, training
from boxmend.integrations.ultralytics.labels import TrainingLabels
from tests.integrations.test_ultralytics_training import (
    SIDE,
    Noisy,
    Oracle,
    noisy,
    oracle,
    stop_after,
    train,
)

__all__ = ["noisy", "oracle"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages

MODEL = "yolo11n.yaml"
VERSION = tuple(map(int, ultralytics_version.split(".")))


@pytest.fixture(autouse=True)
def _separate_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXMEND_ULTRALYTICS", "{}")  # restored afterwards


# Several GPUs.


def test_a_process_of_several_gpus_mends_once_although_it_inherits_callbacks(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = {
        "model": MODEL,
        "data": str(noisy.yaml),
        "imgsz": SIDE,
        "batch": 8,
        "epochs": 2,
        "device": "cpu",
        "val": False,
        "plots": False,
        "project": str(tmp_path / "yolo"),
        "exist_ok": True,
    }
    parent = mending.configure(out, every=1)(overrides=options)
    own = {  # without functions of Ultralytics that only cloudpickle can pickle
        event: [f for f in functions if "boxmend" in f.__module__]
        for event, functions in parent.callbacks.items()
    }
    state = pickle.dumps((type(parent), vars(parent.args), own))
    kind, arguments, callbacks = pickle.loads(state)
    assert len(attaching.detach_all(dict(callbacks))) == 1
    inherited = {**get_default_callbacks(), **callbacks}
    defaults = {**DEFAULT_CFG_DICT, "save_dir": ""}
    child = kind(cfg=defaults, overrides=arguments, _callbacks=defaultdict(list, inherited))
    assert len(attaching.detach_all(dict(child.callbacks))) == 1
    child.train()
    assert boxmend.open_run(out).is_finished


def test_objects_that_other_processes_cannot_inherit_are_refused(noisy: Noisy) -> None:
    with pytest.raises(UsageError, match=r"prescreen is a ndarray.* pass 'default' or a file"):
        mending.configure(prescreen=np.ones((3, 6)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"dataset is a Dataset.* pass its address, like"):
        mending.configure(dataset=noisy.dataset)  # type: ignore[arg-type]


# Heads without a distribution of distances.


@pytest.mark.skipif(VERSION < (8, 4, 190), reason="this Ultralytics has no supported YOLO26")
def test_a_short_training_of_yolo26_updates(
    noisy: Noisy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = YOLO("yolo26n.yaml")
    attached = mending.attach(model, tmp_path / "run", every=1)

    def invert_boxes(trainer: Any) -> None:
        head = list(trainer.ema.ema.model.children())[-1]
        for level in head.cv2:
            level[-1].bias.data[:] = torch.tensor([2.0, 2.0, 2.0, -5.0])  # bottom above top
        for level in head.cv3:
            level[-1].bias.data[:] = 2.0  # a good score

    model.add_callback("on_train_epoch_end", invert_boxes)
    train(model, noisy, epochs=2)
    assert attached.run is not None
    assert "no update" not in caplog.text


# The folder of the run.


@pytest.fixture
def expensive(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the prescreens instead of computing them."""
    calls: list[str] = []

    def judge(dataset: Any, *, weights: str) -> Any:
        calls.append(weights)
        return np.full((len(dataset), len(dataset.label_names)), np.nan)

    monkeypatch.setattr(attaching, "judge_labels", judge)
    return calls


def test_a_used_folder_is_refused_before_the_prescreen(
    noisy: Noisy, tmp_path: Path, expensive: list[str]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "mine.txt").write_text("x")
    model = YOLO(MODEL)
    mending.attach(model, out, prescreen="default")
    with pytest.raises(OutputError, match=r"not empty \(mine\.txt\); name a new folder"):
        train(model, noisy)
    tokens = ["--trainer", f"ultralytics:{MODEL}", "--prescreen", "default"]
    assert run(["train", str(noisy.yaml), "--out", str(out), *tokens]) == 3
    assert expensive == []
    assert not (tmp_path / "run-yolo").exists()


def test_an_unfinished_run_is_named_with_the_way_to_resume_it(
    noisy: Noisy, oracle: Oracle, tmp_path: Path, expensive: list[str]
) -> None:
    model = YOLO(MODEL)
    mending.attach(model, tmp_path / "run")
    model.add_callback("on_fit_epoch_end", stop_after(1))
    with pytest.raises(KeyboardInterrupt):
        train(model, noisy)
    model = YOLO(MODEL)
    mending.attach(model, tmp_path / "run", prescreen="default")
    with pytest.raises(
        OutputError, match=r"unfinished run.*last\.pt.*train\(resume=True\)"
    ) as info:
        train(model, noisy, name="second")
    assert "Mender(" not in str(info.value)
    assert expensive == []


# Several trainings of one model.

needs_two_trainings = pytest.mark.skipif(
    VERSION < (8, 4, 190), reason="old versions of Ultralytics train a model only once"
)


@needs_two_trainings
def test_a_model_is_trained_again_with_another_mending(
    noisy: Noisy, oracle: Oracle, tmp_path: Path
) -> None:
    model = YOLO(MODEL)
    for name in ("a", "b"):
        attached = mending.attach(model, tmp_path / name)
        train(model, noisy, epochs=2, name=name)
        assert attached.run is not None
    assert boxmend.open_run(tmp_path / "b").is_finished


@needs_two_trainings
def test_a_second_training_without_another_mending_is_not_mended(
    noisy: Noisy,
    oracle: Oracle,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = YOLO(MODEL)
    mending.attach(model, tmp_path / "a")
    train(model, noisy, epochs=2)
    calls = oracle.num_calls
    exchanged: list[Any] = []
    monkeypatch.setattr(TrainingLabels, "exchange", lambda *_, **__: exchanged.append(1))
    trainer = train(model, noisy, epochs=2, name="second")
    assert (oracle.num_calls, exchanged) == (calls, [])
    assert "this training is not mended" in caplog.text
    assert not (trainer.wdir / "last.mender.npz").exists()


def test_a_later_attach_replaces_an_earlier_one(
    noisy: Noisy, oracle: Oracle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = YOLO(MODEL)
    mending.attach(model, tmp_path / "a")
    mending.attach(model, tmp_path / "b")
    assert f"the mending into {tmp_path / 'b'} replaces it" in caplog.text
    train(model, noisy, epochs=2)
    assert not (tmp_path / "a").exists()
    assert boxmend.open_run(tmp_path / "b").is_finished


# Places of a data.yaml.


@pytest.fixture
def from_working_folder(noisy: Noisy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noisy:
    """Write a data.yaml elsewhere, whose `path` starts at the working folder."""
    folder = tmp_path / "settings"
    folder.mkdir()
    lines = [line for line in noisy.yaml.read_text().splitlines() if not line.startswith("path:")]
    (folder / "data.yaml").write_text("\n".join(["path: noisy", *lines, ""]))
    monkeypatch.chdir(tmp_path)
    return Noisy(folder / "data.yaml", noisy.clean)


MOVED = r"reads the training images from .*noisy.*Write the whole path .*`path: .*noisy`"


def test_a_path_that_only_ultralytics_resolves_is_named(
    from_working_folder: Noisy, tmp_path: Path
) -> None:
    model = YOLO(MODEL)
    mending.attach(model, tmp_path / "run")
    with pytest.raises(DataError, match=MOVED):
        train(model, from_working_folder)
    assert not (tmp_path / "run").exists()


def test_the_command_names_a_path_that_only_ultralytics_resolves(
    from_working_folder: Noisy, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=MOVED):
        mending.train(MODEL, from_working_folder.yaml, tmp_path / "run")
    assert not list(tmp_path.glob("run*"))


# Errors of the command.


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["--trainer", "ultralytics:rtdetr-l.yaml"], "rtdetr-l.yaml is not a YOLO model; boxmend"),
        (["--trainer", "ultralytics:yolo11n-cls.yaml"], "is for the task classify; boxmend supp"),
        (
            ["--trainer", f"ultralytics:{MODEL}", "--device", "0,1"],
            "device is 0,1, but `train`",
        ),
    ],
)
def test_the_command_refuses_what_it_cannot_train_before_anything_is_written(
    noisy: Noisy,
    tmp_path: Path,
    tokens: list[str],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(["train", str(noisy.yaml), "--out", str(tmp_path / "run"), *tokens]) == 2
    assert message in capfd.readouterr().err
    assert not list(tmp_path.glob("run*"))


def test_a_model_that_cannot_be_downloaded_is_named(
    noisy: Noisy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: str) -> None:
        raise ConnectionError("Environment may be offline")

    monkeypatch.setattr(training, "YOLO", fail)
    with pytest.raises(
        UsageError, match=r"download the model yolo11n\.pt: .* offline.*pass the file"
    ):
        mending.train("yolo11n.pt", noisy.yaml, tmp_path / "run")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_command_names_what_ultralytics_refuses(
    noisy: Noisy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = ["--trainer", f"ultralytics:{MODEL}", "--device", "0"]
    assert run(["train", str(noisy.yaml), "--out", str(tmp_path / "run"), *tokens]) == 2
    error = capfd.readouterr().err
    assert "Ultralytics refused the training: Invalid CUDA 'device=0'" in error
    assert "Change --device" in error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mending.attach(MODEL), r"model of attach is 'yolo11n\.yaml'; pass a model"),
        (
            lambda: mending.attach(YOLO(MODEL), settings={"missing": "add"}),  # type: ignore[arg-type]
            r"settings is a dict; expected boxmend\.MenderSettings",
        ),
        (
            lambda: mending.configure(settings={"missing": "add"}),  # type: ignore[arg-type]
            r"settings is a dict; expected boxmend\.MenderSettings",
        ),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
