"""`boxmend bench audit` on a part of the embedded dataset, as people call it."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import disturb, write_noisy
from boxmend.scoring.finders.kinds import OTHERS
from tests.auditing import audit_data

KEPT = 80  # images


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `clean` and `noisy`, and predictions.json as COCO has results."""
    pytest.importorskip("cleanlab")
    folder = tmp_path_factory.mktemp("world")
    audited = audit_data.audited(audit_data.NOISY)
    rows = np.arange(KEPT)
    audit_data.clean_dataset().take_images(rows).save(folder / "clean", images_as="none")
    audited.dataset.take_images(rows).save(folder / "noisy", images_as="none")
    predictions = audited.predictions
    results = [
        {
            "image_id": int(audited.dataset.images.ids[predictions.image_rows[k]]),
            "category_name": audited.dataset.label_names[predictions.labels[k]],
            "bbox": [
                *predictions.boxes[k, :2].tolist(),
                *(predictions.boxes[k, 2:] - predictions.boxes[k, :2]).tolist(),
            ],
            "score": float(predictions.scores[k]),
        }
        for k, (x, y, right, bottom) in enumerate(predictions.boxes.tolist())
        if predictions.image_rows[k] < KEPT
    ]
    (folder / "predictions.json").write_text(json.dumps(results))
    return folder


def make_command(world: Path, *more: str) -> list[str]:
    """Return the command without --truth."""
    predictions = ("--predictions", str(world / "predictions.json"))
    return ["bench", "audit", str(world / "noisy"), *predictions, *more]


@pytest.fixture(scope="module")
def answer(world: Path) -> dict[str, Any]:
    """What the command wrote by --out."""
    out = world / "figures.json"
    words = make_command(
        world, "--truth", str(world / "clean"), "--out", str(out), "--precision", "0.7"
    )
    assert run(words) == 0
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures


def test_the_answer_has_all_finders_by_kind(answer: dict[str, Any]) -> None:
    table = {(score["kind"], score["finder"]): score for score in answer["finders"]["scores"]}
    assert {finder for _, finder in table} == {"boxmend", *OTHERS}
    assert {kind for kind, finder in table if finder == "boxmend"} == {
        *("wrong label", "bad box", "missing", "spurious", "duplicate")
    }
    assert answer["images"] == KEPT
    assert answer["finders"]["errors"]["missing"] > 0
    for one in table.values():
        if one["kind"] != "duplicate":
            assert 0 <= one["average_precision"] <= 1


def test_the_answer_has_calibration_and_the_requested_precision(answer: dict[str, Any]) -> None:
    assert answer["calibration"].keys() == {"wrong label", "bad box", "spurious", "duplicate"}
    for one in answer["calibration"].values():
        assert one["number"] == answer["finders"]["annotations"]
        assert sum(part["number"] for part in one["bins"]) == one["number"]
        assert len(one["bins"]) == answer["calibration_bins"] == 15
    chosen = answer["at_precision"]
    everything = chosen["by_kind"]["in all"]
    assert chosen["wanted"] == 0.7
    assert everything["expected"] >= 0.7
    assert everything["precision"] == everything["right"] / everything["fixes"]
    assert everything["fixes"] < answer["fixes"]["in all"]["fixes"]
    assert 0 < answer["called_wrong"]["in all"] < 1
    assert answer["versions"].keys() == {"boxmend", "cleanlab", "hotcoco"}


def test_the_command_prints_tables_or_the_json_of_the_file(
    world: Path, answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = make_command(world, "--truth", str(world / "clean"), "--precision", "0.7")
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "who finds more" in text
    assert "fixes chosen for a precision of 0.7" in text
    assert "recall at 0.7" in text
    number = answer["finders"]["errors"]["wrong label"]
    assert f"wrong label ({number})  boxmend" in text
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_a_note_says_that_the_truth_has_no_missing_annotations(
    tmp_path: Path, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean: Dataset = audit_data.clean_dataset().take_images(np.arange(KEPT))
    write_noisy(
        disturb(clean, audit_data.NOISE), audit_data.NOISE, tmp_path / "noisy", WriteOptions("none")
    )
    words = ["bench", "audit", str(tmp_path / "noisy"), "--truth", str(tmp_path / "noisy")]
    assert run([*words, "--predictions", str(world / "predictions.json"), "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["missing"] is None
    assert "missing" not in {score["kind"] for score in result["finders"]["scores"]}
    assert "give the clean dataset by --truth" in printed.err


def test_a_correction_with_other_ids_is_matched_by_overlap(
    tmp_path: Path, world: Path, answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    clean: Dataset = audit_data.clean_dataset().take_images(np.arange(KEPT))
    clean.save(tmp_path / "corrected", images_as="none")
    (path,) = (tmp_path / "corrected").glob("*.json")
    document = json.loads(path.read_text())
    for number, annotation in enumerate(reversed(document["annotations"])):
        annotation["id"] = 50_000 + number
    document["annotations"].reverse()
    path.write_text(json.dumps(document))
    capsys.readouterr()
    assert run([*make_command(world, "--truth", str(tmp_path / "corrected")), "--json"]) == 0
    printed = capsys.readouterr()
    assert "boxes are matched one to one" in printed.err
    errors = json.loads(printed.out)["finders"]["errors"]
    expected = answer["finders"]["errors"]
    for kind in ("wrong label", "missing", "spurious"):
        assert errors[kind] == pytest.approx(expected[kind], abs=4)


def test_objects_at_the_border_are_left_out_on_request(
    world: Path, answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = make_command(world, "--truth", str(world / "clean"), "--ignore-border", "2", "--json")
    assert run(words) == 0
    inner = json.loads(capsys.readouterr().out)
    assert inner["ignore_border"] == 2
    fewer, all_of_them = inner["finders"], answer["finders"]
    assert 0 < fewer["annotations"] < all_of_them["annotations"]
    assert 0 < fewer["errors"]["bad box"] < all_of_them["errors"]["bad box"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data"], "give --predictions"),
        (["data", "--predictions", "x.json"], "give --truth"),
        (["--predictions", "x.json", "--truth", "y"], "give the data"),
        (
            ["data", "--predictions", "x.json", "--truth", "y", "--precision", "95"],
            "--precision is 95",
        ),
        (
            ["data", "--predictions", "x.json", "--truth", "y", "--out", __file__],
            "the file exists",
        ),
        (
            ["data", "--predictions", "x.json", "--truth", "y", "--ignore-border", "-1"],
            "--ignore-border is -1",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "audit", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_cleanlab_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cleanlab.object_detection", None)
    words = ["bench", "audit", "data", "--predictions", "x.json", "--truth", "y"]
    assert run(words) == 2
    assert "pip install 'boxmend[compare]'" in capsys.readouterr().err


def test_a_failure_leaves_no_file(tmp_path: Path, world: Path) -> None:
    out = tmp_path / "figures.json"
    bad = tmp_path / "bad.json"
    bad.write_text('[{"image_id": 1}]')
    words = ["bench", "audit", str(world / "noisy"), "--truth", str(world / "clean")]
    assert run([*words, "--predictions", str(bad), "--out", str(out)]) == 3
    assert not out.exists()


def test_the_noise_of_the_kept_predictions_is_that_of_the_dataset() -> None:
    audited = audit_data.audited(audit_data.NOISY)
    objects = audited.truth.objects
    assert objects is not None
    # 1,894 annotations: 5 % of them missing and as many spurious.
    assert (len(audited.dataset), int(objects.is_missing.sum())) == (1894, 95)
    assert int(audited.truth.is_spurious.sum()) == 95
    assert audited.predictions.labels.max() == len(audited.dataset.label_names) - 1
    fold_of_image = np.full(len(audited.dataset.images), -1)
    fold_of_image[audited.predictions.image_rows] = audited.predictions.folds
    again = fold_of_image[audited.predictions.image_rows]
    assert again.tolist() == audited.predictions.folds.tolist()  # one detector an image
