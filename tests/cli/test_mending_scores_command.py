"""`boxmend evaluate --truth`: the mending of a run as a person and as a script sees it."""

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from boxmend.cli import run as boxmend
from boxmend.data.formats import load
from boxmend.runs.folder import Run
from tests import ROOT
from tests.cli.cli_answers import answer, in_a_process
from tests.fabricated_runs import KEPT, RELABELLED, Visit, run_on

NAMES = ("disc", "star")
DISC, STAR = 0, 1
CLEAN = [  # image, label, box as x, y, width, height
    (1, STAR, [0, 0, 40, 40]),
    (1, DISC, [50, 50, 20, 20]),
    (2, DISC, [10, 10, 40, 20]),
    (2, STAR, [60, 10, 20, 40]),
]
NOISY = [
    (1, DISC, [0, 0, 40, 20]),  # wrong label; half of its box: IoU 0.5
    (1, DISC, [50, 50, 20, 20]),
    (2, STAR, [10, 10, 40, 20]),  # wrong label
    (2, STAR, [60, 10, 20, 40]),
]


def coco(folder: Path, annotations: list[tuple[int, int, list[int]]]) -> Path:
    folder.mkdir()
    for number in (1, 2):
        Image.new("RGB", (96, 96), (90, 120 * number, 30)).save(folder / f"{number}.png")
    images = [{"id": k, "file_name": f"{k}.png", "width": 96, "height": 96} for k in (1, 2)]
    document = {
        "images": images,
        "categories": [{"id": k + 1, "name": name} for k, name in enumerate(NAMES)],
        "annotations": [
            {"id": 10 + k, "image_id": image, "category_id": label + 1, "bbox": box, "iscrowd": 0}
            for k, (image, label, box) in enumerate(annotations)
        ],
    }
    (folder / "instances_train.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return coco(tmp_path / "clean", CLEAN)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one epoch that mends annotation 10 in both and spoils the label of 13."""
    noisy = coco(tmp_path / "noisy", NOISY)
    seen = partial(Visit, 0, confidence=0.9, threshold=1.5, num_candidates=1)
    visits = [
        seen(row=0, verdict=RELABELLED, label=STAR, loss=3.0, box=(0, 0, 40, 40)),
        seen(row=1, verdict=KEPT, label=DISC, loss=0.0),
        seen(row=2, verdict=KEPT, label=STAR, loss=1.0),
        seen(row=3, verdict=RELABELLED, label=DISC, loss=2.0),
    ]
    settings = {"image_size": "96", "detector": "tiny"}
    return run_on(load(str(noisy)), tmp_path / "run", [str(noisy)], visits, settings=settings)


@pytest.fixture
def detections(tmp_path: Path) -> Path:
    """One detection: of a disc where annotation 12 says star."""
    path = tmp_path / "found.json"
    path.write_text(
        json.dumps([{"image_id": 2, "category_id": 1, "bbox": [10, 10, 40, 20], "score": 0.75}])
    )
    return path


def test_figures_are_fractions_and_kept_in_the_run(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, result = answer(capsys, "evaluate", run, "--truth", clean)
    assert status == 0
    assert list(result) == ["mending"]
    mending = result["mending"]
    assert mending["truth"] == str(clean)
    labels, boxes = mending["changes"]["labels"], mending["changes"]["boxes"]
    assert (labels["relabelled"], labels["right"], labels["harm"], labels["missed"]) == (2, 1, 1, 1)
    assert (labels["noise_before"], labels["noise_after"]) == (0.5, 0.5)
    assert (boxes["moved"], boxes["better"], boxes["bad_after"]) == (1, 1, 0)
    assert mending["boxes"]["noisy"] == {
        "corloc": 0.75,
        "mean_iou": 3.5 / 4,
        "above_half": 0.75,
        "above_corloc": 0.75,
    }
    assert mending["labels"]["judgment"]["tp"] == mending["labels"]["judgment"]["fp"] == 0.5
    # Losses 3 and 1 of the wrong labels, 0 and 2 of the right ones: 3 of 4 pairs.
    assert mending["labels"]["loss_auroc"] == 3 / 4
    assert Run(run).read_json("mending.json") == result


def test_tables_tell_people_what_was_right_and_what_did_harm(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boxmend(["evaluate", str(run), "--truth", f"{clean}:train"]) == 0
    printed = capsys.readouterr().out
    assert "changes: 3, of which 2 right, 1 harm, 0 neither; " in printed
    assert "; wrong annotations: 2, of which 1 missed\n" in printed
    assert "labels replaced: 2, of which 1 right now, 0 wrong before and after, 1 right" in printed
    assert "boxes moved: 1, of which 1 better, 0 about the same, 0 worse: harm" in printed
    assert "wrong labels: 2 (50.0 %) before, 2 (50.0 %) after; 1 missed" in printed
    assert "mean IoU 0.875 before, 1.000 after" in printed
    lines = {line.split("  ")[0]: line.split()[-4:] for line in printed.splitlines()}
    assert lines["as annotated"] == ["75.0", "%", "75.0", "%"]
    assert "wrong, judged noisy (TP)                   50.0 % (1)" in printed
    assert "spurious annotations" not in printed
    assert "Who finds more" not in printed


def test_other_finders_use_the_detections_of_the_file(
    run: Path, clean: Path, detections: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cleanlab")
    options = ("--truth", clean, "--compare", "--training-detections", detections)
    status, result = answer(capsys, "evaluate", run, *options)
    assert status == 0
    assert list(result) == ["mending", "finders"]
    finders = result["finders"]
    assert (finders["annotations"], finders["wrong_labels"], finders["bad_boxes"]) == (4, 2, 1)
    rows: dict[Any, Any] = {(score["finder"], score["kind"]): score for score in finders["scores"]}
    theirs = rows["hotcoco label_errors", "wrong label"]
    assert (theirs["flagged"], theirs["precision"], theirs["recall"]) == (1, 1, 0.5)
    assert Run(run).read_json("mending.json") == result

    assert boxmend(["evaluate", str(run), *map(str, options)]) == 0
    printed = capsys.readouterr().out
    assert (
        "Who finds more errors in the same 4 annotations (wrong labels: 2, bad boxes: 1)\n"
        in printed
    )
    [row] = [line for line in printed.splitlines() if "hotcoco" in line and "wrong" in line]
    assert row.split()[4:] == ["0.750", "0.750", "1", "100.0", "%", "50.0", "%"]
    assert "the detections of --training-detections" in printed
    assert "may have memorised wrong annotations" not in printed


@pytest.mark.parametrize("score", [75, -0.5])
def test_scores_that_are_no_confidences_are_refused_for_the_comparison(
    run: Path, clean: Path, detections: Path, score: float, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cleanlab")
    sure = json.loads(detections.read_text())[0]
    detections.write_text(json.dumps([sure | {"score": 1}, sure | {"score": score}]))
    options = ["--truth", str(clean), "--compare", "--training-detections", str(detections)]
    assert boxmend(["evaluate", str(run), *options]) == 3
    result = capsys.readouterr().err
    assert f"{detections}: detection 1 (the first is 0): score is {score:g}" in result
    assert not (run / "mending.json").exists()


def test_the_run_makes_detections_if_there_is_no_file(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cleanlab")
    from boxmend.detector import build, save
    from boxmend.training.card import ModelCard

    card = ModelCard("tiny", NAMES, (1, 2), "96")
    save(build("tiny", len(NAMES)), run / "model.safetensors", card.metadata())
    assert boxmend(["evaluate", str(run), "--truth", str(clean), "--compare"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("FiftyOne mistakenness") == 2
    assert "may have memorised wrong annotations" in printed


def test_a_model_of_other_labels_is_refused(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from boxmend.detector import build, save
    from boxmend.training.card import ModelCard

    card = ModelCard("tiny", ("star", "disc"), (1, 2), "96")
    save(build("tiny", 2), run / "model.safetensors", card.metadata())
    assert boxmend(["evaluate", str(run), "--truth", str(clean), "--compare"]) == 3
    assert "the label names of its model differ from those of its data" in capsys.readouterr().err
    assert not (run / "mending.json").exists()


def test_data_that_were_moved_are_named(
    run: Path, clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noisy").rename(tmp_path / "elsewhere")
    assert boxmend(["evaluate", str(run), "--truth", str(clean)]) == 3
    message = capsys.readouterr().err
    assert "the data of the run are gone" in message
    assert "--training-data" in message
    there = ("--training-data", tmp_path / "elsewhere")
    status, result = answer(capsys, "evaluate", run, "--truth", clean, *there)
    assert status == 0
    assert result["mending"]["changes"]["changes"] == 3


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["--compare"], "add --truth"),
        (["--training-data", "somewhere"], "add --truth"),
        (["--truth", "{clean}", "--training-detections", "x.json"], "add --compare"),
        (["--truth", "nowhere"], "no such file or folder"),
        (["--truth", "{clean}", "--compare", "--training-detections", "x.json"], "x.json"),
    ],
)
def test_choices_that_mean_nothing_are_wrong_use(
    run: Path,
    clean: Path,
    tokens: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = [token.format(clean=clean) for token in tokens]
    assert boxmend(["evaluate", str(run), *result]) == 2
    assert words in capsys.readouterr().err
    assert not (run / "mending.json").exists()


def test_without_cleanlab_the_comparison_says_how_to_get_it(
    run: Path,
    clean: Path,
    detections: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "cleanlab.object_detection", None)
    options = ["--compare", "--training-detections", str(detections)]
    assert boxmend(["evaluate", str(run), "--truth", str(clean), *options]) == 2
    assert "pip install 'boxmend[compare]'" in capsys.readouterr().err
    # The run has no model: the error comes before detections are made.
    assert boxmend(["evaluate", str(run), "--truth", str(clean), "--compare"]) == 2
    assert "pip install 'boxmend[compare]'" in capsys.readouterr().err


def test_a_wrong_truth_is_reported_before_the_model_predicts(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, truth = ("--data", str(clean)), ("--truth", "nowhere")  # and the run has no model
    assert boxmend(["evaluate", str(run), *data, *truth]) == 2
    assert "nowhere: no such file or folder" in capsys.readouterr().err


def test_a_truth_without_errors_gives_a_note(
    run: Path, clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boxmend(["evaluate", str(run), "--truth", str(tmp_path / "noisy")]) == 0
    printed = capsys.readouterr()
    assert "changes: 3, of which 0 right, 3 harm, 0 neither; wrong annotations: 0" in printed.out
    assert "note: according to this truth no annotation is wrong" in printed.err
    assert boxmend(["evaluate", str(run), "--truth", str(clean)]) == 0
    assert "note:" not in capsys.readouterr().err


def test_a_truth_whose_name_is_no_text_is_printed_as_valid_json(run: Path, clean: Path) -> None:
    odd = os.fsdecode(os.fsencode(clean) + b"\xff")
    clean.rename(odd)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1"}
    tokens = ["evaluate", str(run), "--truth", odd]
    done = in_a_process([*tokens, "--json"], env=environment)
    assert json.loads(done.stdout)["mending"]["truth"] == odd
    assert done.returncode == 0
    done = in_a_process(tokens, env=environment)
    assert done.returncode == 0
    assert "Mending compared with the truth" in done.stdout


def test_the_python_of_the_page_runs(
    run: Path,
    clean: Path,
    detections: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("cleanlab")
    page = ROOT / "docs" / "evaluation.md"
    after = page.read_text().partition("## Comparison with other finders")[2]
    (code,) = re.findall(r"```python\n(.*?)```", after, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("runs/demo/runs").mkdir(parents=True)
    Path("runs/demo/runs/mend").symlink_to(run)
    Path("runs/demo/noisy").symlink_to(clean)
    assert detections == tmp_path / "found.json"
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["right"] == 1
    assert [one.flagged for one in names["finders"] if one.finder == "hotcoco label_errors"] == [
        1,
        None,
    ]


def test_where_the_run_cannot_be_written_the_figures_are_printed_all_the_same(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "mending.json").mkdir()
    assert boxmend(["evaluate", str(run), "--truth", str(clean)]) == 0
    printed = capsys.readouterr()
    assert "changes: 3, of which 2 right" in printed.out
    assert "mending.json: could not be written" in printed.err


def test_a_second_time_replaces_the_first(
    run: Path, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "mending.json").write_text("old")
    status, result = answer(capsys, "evaluate", run, "--truth", clean)
    assert status == 0
    assert Run(run).read_json("mending.json") == result
