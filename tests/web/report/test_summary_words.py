"""The sentences and key figures of the summary on the page."""

import json
from pathlib import Path

import pytest

from boxmend.data.types import Box
from boxmend.runs.folder import open_run
from boxmend.web.report.content import Pattern
from boxmend.web.report.gathering import ReportSettings
from boxmend.web.report.summary import patterns_of
from boxmend.web.report.writing import write_report
from tests.fabricated_runs import (
    BOXES,
    DISCARDED,
    KEPT,
    RELABELLED,
    UNJUDGED,
    drawn,
    probed_run,
)
from tests.web.report.drawn_records import made_dataset, made_record, seen, telling_visits
from tests.web.report.drawn_runs import drawn_run
from tests.web.report.read_pages import parts_of, said

NOISE = {"label_noise": 0.25, "label_noise_low": 0.125, "label_noise_high": 0.5, "box_noise": 0.4}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return drawn_run(tmp_path, telling_visits(), summary={"noise": NOISE})


def test_the_summary_says_what_was_found_and_changed(run: Path) -> None:
    text = " ".join(" ".join(parts_of(write_report(run).path).texts[""]).split())
    assert "trained a detector on 2 images with 4 annotations" in text
    assert "It estimates that 25 % of the labels are wrong (12 % to" in text
    assert "changed 1 label, moved 2 boxes, and was unsure of 1 annotation" in text
    assert "40.0 % " in text  # box noise
    assert "torch 9.9" in text
    assert "AP50" not in text
    assert "truth" not in text.split("Gallery")[0]


def test_known_scores_and_truth_are_in_the_summary(run: Path, tmp_path: Path) -> None:
    (run / "finished").write_text(
        json.dumps(
            open_run(run).summary()
            | {"val": {"voc_ap50_area": 0.75}, "val_by_label": {"van": 0.5, "bus": None}}
        )
    )
    other = tmp_path / "other"
    baseline = drawn_run(other, telling_visits(), summary={"val": {"voc_ap50_area": 0.5}})
    settings = ReportSettings(truth=str(tmp_path / "data"), baseline=baseline)
    text = " ".join(" ".join(parts_of(write_report(run, settings=settings).path).texts[""]).split())
    assert "The detector reaches an AP50 of 75.0, the baseline 50.0." in text
    assert "this run has +25.0 points" in text
    # The data are given for the truth: no label was wrong, and 1 of 4 is wrong now.
    assert "0.0 % of the labels were wrong before and 25.0 % are wrong now" in text
    assert "0 of 1; 1 were right before" in text


def test_planted_errors_are_named_and_not_shown_as_changes(tmp_path: Path) -> None:
    visits = [seen(0, 0, RELABELLED, label=2), seen(0, 1, RELABELLED, label=1)]
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), visits, labels={1: 2})
    made = write_report(run)
    text = " ".join(" ".join(parts_of(made.path).texts[""]).split())
    assert made.num_shown == 1
    assert "It changed 1 label;" in text
    assert "it planted errors into 1 annotation in memory; annotations with planted errors" in text


def test_a_run_without_changes_says_so(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, [seen(0, 0, confidence=0.9)])
    made = write_report(run)
    text = " ".join(parts_of(made.path).texts[""])
    assert made.num_shown == 0
    assert "It changed nothing." in text
    assert "The run changed nothing." in text


def test_a_method_that_judges_nothing_is_not_described_as_judging(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, [seen(0, row, UNJUDGED) for row in range(4)])
    text = said(write_report(run).path)
    assert "with 4 annotations. It changed no label and no box." in text
    assert "judged each" not in text


def test_a_single_change_is_in_the_singular(tmp_path: Path) -> None:
    visits = [seen(0, 0, RELABELLED, 1, loss=2.0, threshold=1.0, confidence=0.9)]
    run = drawn_run(tmp_path, visits, boxes=[(10, 10, 30, 50)])
    text = said(write_report(run).path)
    assert "on 1 image with 1 annotation and judged it during training." in text
    assert "It changed 1 label; the gallery below shows it with its reason." in text
    for wrong in ("1 annotations", "1 labels", "1 images", "0 boxes", "(1 times)"):
        assert wrong not in text, wrong


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((2, 0, 0), "changed 2 labels"),
        ((0, 1, 0), "moved 1 box"),
        ((1, 2, 0), "changed 1 label and moved 2 boxes"),
        ((3, 2, 1), "changed 3 labels, moved 2 boxes, and was unsure of 1 annotation"),
    ],
)
def test_only_changes_that_happened_are_listed(
    tmp_path: Path, numbers: tuple[int, int, int], words: str
) -> None:
    relabelled, moved, unsure = numbers
    visits = [seen(0, row, RELABELLED, (row + 1) % 3) for row in range(relabelled)]
    first = relabelled
    visits += [seen(0, first + k, KEPT, box=(0.0, 0.0, 99.0, 99.0)) for k in range(moved)]
    visits += [seen(0, first + moved + k, DISCARDED) for k in range(unsure)]
    visits.append(seen(0, sum(numbers), KEPT))
    boxes: list[Box] = [(10.0, 10.0, 30.0, 50.0)] * 7
    run = drawn_run(tmp_path, visits, boxes=boxes)
    text = said(write_report(run).path)
    shown = "it with its reason" if sum(numbers) == 1 else "each with its reason"
    assert f"It {words}; the gallery below shows {shown}." in text


def test_more_changed_labels_than_kept_ones_are_pointed_out(tmp_path: Path) -> None:
    for name, number in (("half", 1), ("most", 2)):
        visits = [seen(0, row, RELABELLED, (row + 1) % 3) for row in range(number)]
        visits += [seen(0, row) for row in range(number, 2)]
        run = drawn_run(tmp_path / name, visits)
        text = " ".join(parts_of(write_report(run).path).texts[""])
        assert ("more than half of the labels" in text) is (name == "most")


def test_patterns_are_counted_among_the_annotations_that_were_judged() -> None:
    # All are vans: of five one is never visited, two become buses and one a truck.
    dataset = made_dataset([BOXES[0]] * 5, [0] * 5)
    visits = [seen(0, 0, RELABELLED, 1), seen(0, 1, RELABELLED, 2), seen(0, 2, RELABELLED, 2)]
    record = made_record([*visits, seen(0, 3)], dataset=dataset)
    assert patterns_of(record) == [
        Pattern("van", "bus", 2, 0.5, "0-2"),
        Pattern("van", "truck", 1, 0.25, "0-1"),
    ]
