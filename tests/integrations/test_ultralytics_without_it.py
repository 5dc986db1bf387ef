"""What of the Ultralytics integration needs no Ultralytics: options, saved states, detections."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from boxmend.cli import run
from boxmend.errors import DataError, OutputError
from boxmend.integrations.checkpoints import read_state, save_state
from boxmend.integrations.ultralytics import predicting
from boxmend.integrations.ultralytics.folders import ensure_usable
from boxmend.integrations.ultralytics.predicting import select_detections


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["--trainer", "yolo11n.yaml"], "--trainer is yolo11n.yaml; expected ultralytics:MODEL"),
        (["--trainer", "ultralytics:yolo11n.yaml", "--detector", "tiny"], "not support --detector"),
        (["--trainer", "ultralytics:y.yaml", "--image-size", "600/1000"], "expected one number"),
        (["--device", "cpu"], "--device is for --trainer"),
        (["--prescreen", "default"], "--prescreen is for --trainer; mend has a prescreen"),
    ],
)
def test_wrong_options_of_train_are_named(
    tokens: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "data.yaml", "--out", "never", *tokens]) == 2
    assert message in capsys.readouterr().err
    assert not Path("never").exists()


def test_train_needs_one_data_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = ["--trainer", "ultralytics:yolo11n.yaml"]
    assert run(["train", "a.json", "--out", "never", *trainer]) == 2
    assert "needs one data.yaml, but the data are a.json" in capsys.readouterr().err
    assert run(["train", "data.yaml:train", "--out", "never", *trainer]) == 2
    assert "leave out `:train` of data.yaml:train" in capsys.readouterr().err


def test_a_state_is_read_as_it_was_saved(tmp_path: Path) -> None:
    state = {"epoch": 3, "rate": 0.25, "name": "x", "on": True, "boxes": np.eye(2)}
    save_state(state, tmp_path / "last.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["last.mender.npz"]
    again = read_state(tmp_path / "last.pt")
    assert json.dumps({**again, "boxes": None}) == json.dumps({**state, "boxes": None})
    np.testing.assert_array_equal(again["boxes"], np.eye(2))


def test_a_missing_or_damaged_state_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"last\.mender\.npz does not exist.*not mended: resume"):
        read_state(tmp_path / "last.pt")
    (tmp_path / "last.mender.npz").write_bytes(b"PK\x03\x04 and no more")
    save_state({"rate": 0.25}, tmp_path / "best.pt")
    path = tmp_path / "best.mender.npz"
    path.write_bytes(path.read_bytes().replace(b"rate", b"rats"))
    with pytest.raises(DataError, match=r"best\.mender\.npz.*start a new training"):
        read_state(tmp_path / "best.pt")
    with pytest.raises(
        DataError, match=r"last\.mender\.npz cannot be read .* start a new training"
    ):
        read_state(tmp_path / "last.pt")


def test_a_run_needs_a_new_an_empty_or_a_resumable_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    ensure_usable(out)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="exists and is not a folder; name a new folder"):
        ensure_usable(tmp_path / "file")
    out.mkdir()
    (out / ".lock").touch()  # of a run that was killed at its start
    ensure_usable(out)
    (out / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match=r"not empty \(mine\.txt\); name a new folder"):
        ensure_usable(out)
    (out / "run.json").write_text("{}")
    ensure_usable(out, resume=True)
    with pytest.raises(
        OutputError, match=r"unfinished run.*attach with the same options, and call"
    ):
        ensure_usable(out)
    (out / "finished").touch()
    with pytest.raises(OutputError, match="has a finished run, which is never overwritten"):
        ensure_usable(out, resume=True)


def make_output(*rows: tuple[float, ...]) -> torch.Tensor:
    """Return the output of a head with one image; each row has a box as centers and sizes."""
    return torch.tensor(rows).T[None]


def test_detections_of_one_class_that_overlap_are_suppressed() -> None:
    output = make_output(
        (10, 10, 10, 10, 0.2, 0.1),  # the weaker of two
        (10, 10, 10, 9, 0.7, 0.3),
        (10, 10, 10, 10, 0.1, 0.6),  # another class
        (10, 10, 10, 6, 0.5, 0.0),  # an IoU of 0.67 with the best
        (40, 10, 10, 10, 0.005, 0.009),  # too weak
    )
    found = select_detections(output)
    used = found.is_used[0]
    assert found.labels[0][used].tolist() == [0, 1, 0]
    torch.testing.assert_close(found.scores[0][used], torch.tensor([0.7, 0.6, 0.5]))
    torch.testing.assert_close(found.boxes[0][used][0], torch.tensor([5, 5.5, 15, 14.5]))
    torch.testing.assert_close(found.class_scores[0][used][1], torch.tensor([0.1, 0.6]))


def test_boxes_of_negative_size_are_dropped() -> None:
    output = make_output((10, 10, 10, -4, 0.9, 0.1), (10, 10, -1, 4, 0.8, 0), (9, 9, 4, 4, 0.7, 0))
    found = select_detections(output)
    assert found.scores[0][found.is_used[0]].tolist() == pytest.approx([0.7])


def test_an_image_has_a_limited_number_of_detections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "MAX_DETECTIONS", 2)
    output = make_output(*((20.0 * k, 10, 10, 10, 0.1 * k) for k in range(1, 5)))
    found = select_detections(torch.cat([output, output * 0]))
    assert found.scores[0][found.is_used[0]].tolist() == pytest.approx([0.4, 0.3])
    assert not found.is_used[1].any()
