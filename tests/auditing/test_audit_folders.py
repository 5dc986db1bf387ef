"""Audits on disk and by command: what is written, what is said, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from boxmend.cli import run
from boxmend.data.formats import load
from boxmend.errors import ExitStatus
from tests.auditing.audit_scenes import Noise, scene


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A noisy dataset and predictions of its images: data/ and predictions.json."""
    folder = tmp_path_factory.mktemp("audited")
    one = scene(Noise(labels=0.2, missing=0.05), images=120)
    one.dataset.save(folder / "data", format="coco", images_as="none")
    detected = one.detected
    entries = [
        {
            "image_id": int(image) + 1,
            "category_id": int(label) + 1,
            "bbox": [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()],
            "score": float(score),
        }
        for image, label, score, box in zip(
            detected.image_rows, detected.labels, detected.scores, detected.boxes, strict=True
        )
    ]
    (folder / "predictions.json").write_text(json.dumps(entries))
    return folder


def command(data: Path, out: Path, *more: str) -> list[str]:
    predictions = ["--predictions", str(data / "predictions.json")]
    return ["audit", str(data / "data"), *predictions, "--out", str(out), *more]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("function", ["write_fixes", "create"])
def test_an_audit_that_fails_while_writing_can_be_repeated(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    function: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"boxmend.auditing.folders.{function}", fail)
        assert run(command(data, tmp_path / "run", "--probe", "0")) == ExitStatus.FAILURE
    assert not list(tmp_path.iterdir())
    assert run(command(data, tmp_path / "run", "--probe", "0")) == ExitStatus.FINE
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_audit_leaves_a_finished_run_with_its_table(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(command(data, out, "--probe", "0", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["evidence"] == "predictions"
    assert document["for_review_likely"] <= document["for_review"]
    assert list(document["yields"]) == ["0.95", "0.9", "0.8", "0.7"]
    assert sum(document["yields"]["0.95"].values()) == document["automatic"]
    assert document["automatic"] + document["for_review"] <= sum(
        one["listed"] for one in document["fixes"].values()
    )
    names = {path.name for path in out.iterdir()}
    assert names == {"run.json", "settings.json", "fixes.parquet", "audit.json", "finished"}
    table = pq.read_table(out / "fixes.parquet")
    assert {"fix", "annotation_id", "kind", "old_label", "new_label", "p_wrong", "p_fix"} <= set(
        table.column_names
    )
    assert {"iou_gain", "reason", "old_x1", "new_y2"} <= set(table.column_names)
    assert len(table) == sum(one["listed"] for one in document["fixes"].values())
    facts = json.loads((out / "run.json").read_text())["facts"]
    assert facts["kind"] == "audit"
    assert facts["predictions"] == [str((data / "predictions.json").absolute())]


def test_the_folder_of_the_images_is_kept_for_those_who_load_the_data_again(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    more = ("--probe", "0", "--images", str(tmp_path / "photos"))
    assert run(command(data, tmp_path / "run", *more)) == 0
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["facts"]
    assert facts["images_folder"] == str(tmp_path / "photos")


def test_two_equal_audits_have_equal_tables(data: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run(command(data, tmp_path / name, "--probe", "0.02")) == 0
    first, second = ((tmp_path / name / "fixes.parquet").read_bytes() for name in ("a", "b"))
    assert first == second


def test_a_person_reads_rates_kinds_and_what_to_do_next(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(data, tmp_path / "run")) == 0
    said = capsys.readouterr()
    for words in (
        "wrong labels",
        "missing, of all objects",
        "duplicate",
        "planted errors",
        "looks alike",
    ):
        assert words in said.out
    assert "boxmend review" in said.err
    assert "--precision 0.95" in said.err
    assert "WARNING: the detector may have been trained on these images" in said.err


def test_predictions_said_to_be_unseen_are_not_warned_of(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(data, tmp_path / "run", "--unseen", "--probe", "0")) == 0
    assert "may have been trained" not in capsys.readouterr().err


def test_predictions_that_repeat_the_annotations_are_warned_of_loudly(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = load(str(data / "data"))
    entries = [
        {
            "image_id": int(dataset.images.ids[image]),
            "category_id": int(label) + 1,
            "bbox": [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()],
            "score": 0.99,
        }
        for image, label, box in zip(dataset.image_rows, dataset.labels, dataset.boxes, strict=True)
    ]
    (tmp_path / "seen.json").write_text(json.dumps(entries))
    arguments = ["audit", str(data / "data"), "--predictions", str(tmp_path / "seen.json")]
    assert run([*arguments, "--out", str(tmp_path / "run"), "--probe", "0"]) == 0
    assert "WARNING: the predictions agree so well with the annotations" in capsys.readouterr().err


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int) -> str:
    assert run(arguments) == status
    said = capsys.readouterr()
    assert not said.out
    return said.err


def test_a_folder_that_holds_something_is_not_written_to(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    assert "mine.txt" in refusal(command(data, tmp_path / "run"), capsys, 3)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_finished_audit_is_never_overwritten(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(data, tmp_path / "run", "--probe", "0", "--json")) == 0
    capsys.readouterr()
    assert "never overwritten" in refusal(command(data, tmp_path / "run"), capsys, 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("[]", "there is no detection"),
        ("{", "not JSON"),
        ('[{"image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "score": 7}]', "score"),
        ('[{"image_id": 1, "category_id": 99, "bbox": [1, 1, 9, 9], "score": 0.7}]', "class"),
        ('[{"image_id": "x.jpg", "category_id": 1, "bbox": [1, 1, 9, 9], "score": 0.7}]', "image"),
    ],
)
def test_bad_predictions_are_refused_and_nothing_is_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    (tmp_path / "bad.json").write_text(content)
    arguments = ["audit", str(data / "data"), "--predictions", str(tmp_path / "bad.json")]
    said = refusal([*arguments, "--out", str(tmp_path / "run")], capsys, 3)
    assert words in said
    assert "bad.json" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit"], "give a dataset and its --predictions"),
        (["audit", "DATA"], "--predictions"),
        (["audit", "DATA", "--predictions", "PREDICTIONS"], "--out"),
        (["audit", "DATA", "--predictions", "PREDICTIONS", "--out", "O", "--probe", "2"], "probe"),
        (["audit", "DATA", "--predictions", "nowhere.json", "--out", "O"], "nowhere.json"),
        (["audit", "nowhere", "--predictions", "PREDICTIONS", "--out", "O"], "nowhere"),
    ],
)
def test_wrong_calls_say_what_to_do(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"DATA": str(data / "data"), "PREDICTIONS": str(data / "predictions.json")}
    said = refusal([places.get(one, one) for one in arguments], capsys, 2)
    assert words in said
    assert list(tmp_path.iterdir()) == []


def test_an_audit_is_no_training_run_to_audit(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(data, tmp_path / "run", "--probe", "0", "--json")) == 0
    capsys.readouterr()
    said = refusal(["audit", str(tmp_path / "run")], capsys, 3)
    assert "is an audit" in said


def test_predictions_in_another_order_give_the_same_table(data: Path, tmp_path: Path) -> None:
    entries: list[Any] = json.loads((data / "predictions.json").read_text())
    order = np.random.default_rng(0).permutation(len(entries))
    half = len(order) // 2
    for name, part in (("one", order[:half]), ("two", order[half:])):
        (tmp_path / f"{name}.json").write_text(json.dumps([entries[k] for k in part.tolist()]))
    assert run(command(data, tmp_path / "whole", "--probe", "0")) == 0
    arguments = ["audit", str(data / "data"), "--probe", "0", "--out", str(tmp_path / "parts")]
    for name in ("two", "one"):
        arguments += ["--predictions", str(tmp_path / f"{name}.json")]
    assert run(arguments) == 0
    first, second = (
        (tmp_path / name / "fixes.parquet").read_bytes() for name in ("whole", "parts")
    )
    assert first == second
