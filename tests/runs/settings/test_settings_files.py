"""Settings from files: the values, and the messages about wrong ones."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from boxmend.errors import UsageError
from boxmend.runs.settings import MendSettings, Optimisation, TrainSettings, resolve_settings
from boxmend.runs.settings.files import read_settings, read_values

TOML = """
method = "mend"
epochs = 3
box_noise = 0
[optimisation]
lr = 1
[mend]
raw_box_share = 0.4
soft_labels = false
"""


def test_toml_sets_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TOML)
    assert read_values(path) == {
        ("method",): "mend",
        ("epochs",): 3,
        ("box_noise",): 0.0,
        ("optimisation", "lr"): 1.0,
        ("mend", "raw_box_share"): 0.4,
        ("mend", "soft_labels"): False,
    }
    assert read_settings(path) == TrainSettings(
        epochs=3,
        box_noise=0.0,
        optimisation=Optimisation(lr=1.0),
        mend=MendSettings(raw_box_share=0.4, soft_labels=False),
    )


def test_the_settings_of_a_run_come_back(tmp_path: Path) -> None:
    settings = resolve_settings(TrainSettings(method="mend-paper", weights=None, box_noise=0.4))
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(asdict(settings)))
    assert read_settings(path) == settings
    assert read_values(path)["label_noise",] == "auto"


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    (tmp_path / "a.json").write_text("{}")
    assert read_values(tmp_path / "a.toml") == read_values(tmp_path / "a.json") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 'x'", "epochs: Expected `int`, got `str`"),
        ("epochs = 2.5", "epochs: Expected `int`, got `float`"),
        ("strict = 1", "strict: Expected `bool`, got `int`"),
        ("preset = 'p'", "preset: Invalid enum value 'p'"),
        (
            "[mend]\nraw_box_share = 'a'",
            r"mend\.raw_box_share: Expected `float \| null`, got `str`",
        ),
        ("[mend]\nraw_box_share = 3", r"mend\.raw_box_share is 3\.0; expected a share"),
        ("[mend]\nalpa = 1", r"there is no setting mend\.alpa; did you mean mend\.alpha\?"),
        (
            "[mend]\nnear = 1",
            r"there is no setting mend\.near any more; its name is mend\.vote_min",
        ),
        ("graph = true", "there is no setting graph any more; its name is cuda_graph now"),
        ("batch-size = 3", r"there is no setting batch-size; did you mean batch_size\?"),
        ("qqq = 3", "there is no setting qqq$"),
        ("[mend.raw_box_share]\nx = 1", r"mend\.raw_box_share: Expected"),
        ("[mend.boxes.deep]\nx = 1", r"mend\.boxes: "),
        ("mend = 3", "mend: Expected `object`, got `int`"),
        ("seed = 2020-01-01", "seed: Expected `int`"),
        ("epochs =", "is not TOML"),
        ("label_noise = nan", "label_noise is nan"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"wrong\.toml: {message}"):
        read_values(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "is not a table"),
        (b"epochs = 3", r"is not JSON \(or name it \.toml\)"),
        (b"\xff", "cannot be read as settings"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_file_of_settings_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"wrong\.json: {message}"):
        read_settings(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read as settings \(No such file"):
        read_settings(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="a folder, not a regular file"):
        read_settings(tmp_path)
