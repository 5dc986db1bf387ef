"""`boxmend train`: what the options, a file and the defaults make of the settings."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import boxmend.training.train
from boxmend.cli import run
from boxmend.cli.train import PANELS
from boxmend.runs.settings import MendSettings, Optimisation, PublishedSettings, TrainSettings
from boxmend.training import trackers
from tests.cli.cli_answers import answer

FILE = """
epochs = 3
batch_size = 4
strict = true
[mend]
raw_box_share = 0.4
vote_min_iou = 0.2
[optimisation]
lr = 0.5
"""


@dataclass
class Asked:
    """A stand-in for a training: it notes what it was asked for."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def __call__(self, data: Any, out: Path, settings: Any, **options: Any) -> Any:
        self.calls.append((data, out, settings, options))
        options["log"]({"step": 1, "epoch": 0, "loss": 2.0})
        return self

    path = Path("a/run")

    def summary(self) -> dict[str, Any]:
        return {"steps": 1, "val": {"voc_ap50_area": 0.5}}

    @property
    def settings(self) -> TrainSettings:
        (call,) = self.calls
        result: TrainSettings = call[2]
        return result


@pytest.fixture
def train_calls(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(boxmend.training.train, "train", asked)
    return asked


def train(*tokens: str) -> int:
    return run(["train", "data", "--out", "a/run", *tokens])


def test_without_options_the_defaults_apply(train_calls: Asked) -> None:
    assert train() == 0
    data, out, settings, options = train_calls.calls[0]
    assert (tuple(data), out, settings) == (("data",), Path("a/run"), TrainSettings())
    assert (tuple(options["val"]), options["resume"]) == ((), False)


def test_only_one_of_several_processes_prints_and_tracks(
    train_calls: Asked, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[dict[str, Any]] = []
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", lambda run: records.append)
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    assert train("--log-to", "tensorboard") == 0
    assert capsys.readouterr() == ("", "")
    assert not records
    monkeypatch.setenv("RANK", "0")
    assert train("--log-to", "tensorboard") == 0
    result = capsys.readouterr()
    assert "steps" in result.out
    assert "the run is a/run" in result.err
    assert records
    assert len(train_calls.calls) == 2  # all take part


def test_every_nested_setting_has_its_dotted_option(train_calls: Asked) -> None:
    tokens = "--mend.raw-box-share 0.4 --mend.no-soft-labels --published.queue-length 256"
    assert train(*tokens.split(), "--optimisation.lr", "0.1", "--preset", "paper") == 0
    assert train_calls.settings == TrainSettings(
        preset="paper",
        mend=MendSettings(raw_box_share=0.4, soft_labels=False),
        published=PublishedSettings(queue_length=256),
        optimisation=Optimisation(lr=0.1),
    )


def test_several_datasets_to_score_on_are_accepted(train_calls: Asked) -> None:
    assert run(["train", "a", "b", "--out", "r", "--val", "c", "--val", "d", "--resume"]) == 0
    data, _, _, options = train_calls.calls[0]
    assert (tuple(data), tuple(options["val"])) == (("a", "b"), ("c", "d"))
    assert options["resume"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (
            ["--mend.raw-box-share", "1.4"],
            "mend.raw_box_share is 1.4; expected a share from 0 to 1",
        ),
        (["--published.queue_length", "0"], "published.queue_length is 0; expected 1 or more"),
        (["--optimisation.average-decay", "2"], "optimisation.average_decay is 2.0"),
        (["--label-noise", "-1"], "label_noise is -1.0"),
        (["--mend.label-rate", "0.2"], "--mend.label-rate"),  # it is --label-noise
        (["--published.box-rate", "0.2"], "--published.box-rate"),
        (["--published.warm-up", "0.2"], "--published.warm-up"),
        (["--preset", "best"], "--preset"),
        (["--log-to", "paper"], "--log-to"),
        (["--epochs", "many"], "--epochs"),
    ],
)
def test_a_wrong_value_is_reported_with_its_option(
    train_calls: Asked, capsys: pytest.CaptureFixture[str], tokens: list[str], message: str
) -> None:
    assert train(*tokens) == 2
    assert message in capsys.readouterr().err
    assert not train_calls.calls


def test_options_go_before_the_file_and_the_file_before_the_defaults(
    train_calls: Asked, tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(FILE)
    assert train("--settings", str(path), "--epochs", "7", "--mend.vote-min-iou", "0.6") == 0
    assert train_calls.settings == TrainSettings(
        epochs=7,
        batch_size=4,
        strict=True,
        mend=MendSettings(raw_box_share=0.4, vote_min_iou=0.6),
        optimisation=Optimisation(lr=0.5),
    )


def test_a_switch_of_the_file_can_be_switched_back(train_calls: Asked, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(FILE)
    assert train("--no-strict", "--settings", str(path)) == 0
    assert not train_calls.settings.strict


def test_a_null_of_the_file_is_one(train_calls: Asked, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"weights": None, "mend": {"alpha": None}, "label_noise": 0}))
    assert train("--settings", str(path)) == 0
    assert train_calls.settings == TrainSettings(weights=None, label_noise=0.0)


def test_a_wrong_file_is_reported_with_its_key(
    train_calls: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[mend]\nraw_box_shar = 1")
    assert train("--settings", str(path)) == 2
    assert (
        "settings.toml: there is no setting mend.raw_box_shar; did you mean mend.raw_box_share?"
        in (capsys.readouterr().err)
    )
    assert not train_calls.calls


def test_trackers_hear_the_log_beside_the_display(
    train_calls: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records: list[Any] = []
    made: list[Sequence[Any]] = []

    def tracker(run: Path) -> Any:
        made.append((run,))
        return records.append

    monkeypatch.setitem(trackers.TRACKERS, "wandb", tracker)
    monkeypatch.setitem(trackers.TRACKERS, "mlflow", tracker)
    assert train("--log-to", "wandb", "--log-to", "mlflow") == 0
    assert made == [(Path("a/run"),)] * 2
    assert records == [{"step": 1, "epoch": 0, "loss": 2.0}] * 2
    assert "epoch 1, step 1 · loss 2" in capsys.readouterr().err


def test_a_missing_tracker_is_reported_before_the_training(
    train_calls: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert train("--log-to", "wandb") == 2
    assert "pip install wandb" in capsys.readouterr().err
    assert not train_calls.calls


def test_the_result_is_printed(train_calls: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    status, result = answer(capsys, "train", "data", "--out", "a/run")
    assert (status, result) == (0, {"run": "a/run", "steps": 1, "val": {"voc_ap50_area": 0.5}})
    assert train() == 0
    printed = capsys.readouterr()
    assert "voc_ap50_area  0.5" in printed.out
    assert "the run is a/run" in printed.err


def names_of(kind: type, prefix: str = "") -> list[str]:
    hints = get_type_hints(kind)
    names: list[str] = []
    for setting in fields(kind):
        name = f"{prefix}{setting.name.replace('_', '-')}"
        nested = hints[setting.name]
        names += names_of(nested, f"{name}.") if is_dataclass(nested) else [name]  # type: ignore[arg-type]
    return names


def test_every_option_is_in_a_panel_with_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--help"]) == 0
    text = capsys.readouterr().out
    panels = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert panels == ["Arguments:", *(f"{title}:" for title in PANELS)]
    lines = text.splitlines()
    for name in names_of(TrainSettings):
        (place,) = [
            k
            for k, line in enumerate(lines)
            if line.split(" ")[2:3] in ([f"--{name}"], [f"--{name},"])
        ]
        assert lines[place + 1].startswith("      ")  # its meaning
    assert max(map(len, lines)) <= 80
    assert "[default: 0.3333]" in text  # a third, of which more digits say no more
    assert not re.search(r"0\.\d{8,}", text)
