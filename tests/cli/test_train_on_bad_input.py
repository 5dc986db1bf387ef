"""boxmend train with invalid input: exit status and message."""

import json
from pathlib import Path

import pytest

import boxmend
from boxmend.cli import run

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ["--detector", "tiny", "--weights", "none", "--image-size", "96", "--epochs", "1"]
QUICK += ["--method", "baseline"]


@pytest.fixture
def spoilt(tmp_path: Path) -> tuple[str, Path]:
    """The address of a dataset of four images, and one of them that cannot be read."""
    boxmend.synthesize(tmp_path / "toys", images=5, seed=2)
    image = Path(boxmend.load(f"{tmp_path / 'toys'}:train").images.paths[1])
    image.write_bytes(image.read_bytes()[:300])
    return f"{tmp_path / 'toys'}:train", image


def test_an_unreadable_image_is_named_and_the_training_ends_well(
    spoilt: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, image = spoilt
    capsys.readouterr()
    assert run(["train", data, *QUICK, "--out", str(tmp_path / "run")]) == 0
    assert str(image) in capsys.readouterr().err
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_strictness_ends_with_three_and_says_what_to_do(
    spoilt: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, image = spoilt
    assert run(["train", data, *QUICK, "--strict", "--out", str(tmp_path / "run")]) == 3
    result = capsys.readouterr().err
    assert str(image) in result
    assert "leave it out by omitting --strict" in result


@pytest.mark.parametrize(
    ("tokens", "status", "word"),
    [
        (["--weights", "nowhere.safetensors"], 3, "nowhere.safetensors: no such weight file"),
        (["--method", "magic"], 2, "mend-paper"),
        (["--detector", "huge"], 2, "mobilenet_v3"),
        (["--image-size", "big"], 2, "600/1000"),
        (["--label-noise", "1.4"], 2, "label_noise"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_input_is_reported_before_a_run_is_created(
    tokens: list[str],
    status: int,
    word: str,
    spoilt: tuple[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [token for token in QUICK if token not in ("--weights", "none")]
    if tokens[0] in options:
        place = options.index(tokens[0])
        del options[place : place + 2]
    assert run(["train", spoilt[0], *options, *tokens, "--out", str(tmp_path / "run")]) == status
    printed = capsys.readouterr()
    assert word in printed.err
    assert "Traceback" not in printed.err
    assert not (tmp_path / "run").exists()


def test_a_dataset_without_a_class_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "instances_train.json"
    image = {"id": 1, "file_name": "a.png", "width": 9, "height": 9}
    path.write_text(json.dumps({"images": [image], "annotations": [], "categories": []}))
    assert run(["train", str(path), *QUICK, "--out", str(tmp_path / "run")]) == 2
    assert "at least one class" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
