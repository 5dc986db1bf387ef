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
    told = audit_data.audited(audit_data.NOISY)
    rows = np.arange(KEPT)
    audit_data.clean_dataset().take_images(rows).save(folder / "clean", images_as="none")
    told.dataset.take_images(rows).save(folder / "noisy", images_as="none")
    found = told.predictions
    results = [
        {
            "image_id": int(told.dataset.images.ids[found.image_rows[k]]),
            "category_name": told.dataset.label_names[found.labels[k]],
            "bbox": [
                *found.boxes[k, :2].tolist(),
                *(found.boxes[k, 2:] - found.boxes[k, :2]).tolist(),
            ],
            "score": float(found.scores[k]),
        }
        for k, (x, y, right, bottom) in enumerate(found.boxes.tolist())
        if found.image_rows[k] < KEPT
    ]
    (folder / "predictions.json").write_text(json.dumps(results))
    return folder


def asked(world: Path, *more: str) -> list[str]:
    """The command, but the truth."""
    predictions = ("--predictions", str(world / "predictions.json"))
    return ["bench", "audit", str(world / "noisy"), *predictions, *more]


@pytest.fixture(scope="module")
def answer(world: Path) -> dict[str, Any]:
    """What the command wrote by --out."""
    out = world / "figures.json"
    words = asked(world, "--truth", str(world / "clean"), "--out", str(out), "--precision", "0.7")
    assert run(words) == 0
    told: dict[str, Any] = json.loads(out.read_text())
    return told


def test_all_finders_are_told_of_by_kind(answer: dict[str, Any]) -> None:
    table = {(one["kind"], one["finder"]): one for one in answer["finders"]["scores"]}
    assert {finder for _, finder in table} == {"boxmend", *OTHERS}
    assert {kind for kind, finder in table if finder == "boxmend"} == {
        *("wrong label", "bad box", "missing", "spurious", "duplicate")
    }
    assert answer["images"] == KEPT
    assert answer["finders"]["errors"]["missing"] > 0
    for one in table.values():
        if one["kind"] != "duplicate":
            assert 0 <= one["average_precision"] <= 1


def test_probabilities_and_the_wanted_precision_are_told_of(answer: dict[str, Any]) -> None:
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


def test_people_see_tables_and_json_is_the_same_as_the_file(
    world: Path, answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = asked(world, "--truth", str(world / "clean"), "--precision", "0.7")
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "who finds more" in text
    assert "fixes chosen for a precision of 0.7" in text
    number = answer["finders"]["errors"]["wrong label"]
    assert f"wrong label ({number})  boxmend" in text
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_a_truth_that_does_not_know_missing_ones_is_said_so(
    tmp_path: Path, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean: Dataset = audit_data.clean_dataset().take_images(np.arange(KEPT))
    write_noisy(
        disturb(clean, audit_data.NOISE), audit_data.NOISE, tmp_path / "noisy", WriteOptions("none")
    )
    words = ["bench", "audit", str(tmp_path / "noisy"), "--truth", str(tmp_path / "noisy")]
    assert run([*words, "--predictions", str(world / "predictions.json"), "--json"]) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert result["missing"] is None
    assert "missing" not in {one["kind"] for one in result["finders"]["scores"]}
    assert "give the clean dataset by --truth" in told.err


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
    assert run([*asked(world, "--truth", str(tmp_path / "corrected")), "--json"]) == 0
    told = capsys.readouterr()
    assert "boxes are matched one to one" in told.err
    errors = json.loads(told.out)["finders"]["errors"]
    expected = answer["finders"]["errors"]
    for kind in ("wrong label", "missing", "spurious"):
        assert errors[kind] == pytest.approx(expected[kind], abs=4)


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
    ],
)
def test_what_cannot_be_is_refused_at_once(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "audit", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_cleanlab_it_says_how_to_get_it(
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
    told = audit_data.audited(audit_data.NOISY)
    objects = told.truth.objects
    assert objects is not None
    # 1,894 annotations: 5 % of them missing and as many of nothing.
    assert (len(told.dataset), int(objects.is_missing.sum())) == (1894, 95)
    assert int(told.truth.is_spurious.sum()) == 95
    assert told.predictions.labels.max() == len(told.dataset.label_names) - 1
    fold_of_image = np.full(len(told.dataset.images), -1)
    fold_of_image[told.predictions.image_rows] = told.predictions.folds
    again = fold_of_image[told.predictions.image_rows]
    assert again.tolist() == told.predictions.folds.tolist()  # one detector an image
