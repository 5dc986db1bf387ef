"""Audits of training runs, from their ledgers: evidence by hand, then a drawn run."""

import math
from pathlib import Path

import numpy as np
import pytest

from boxmend import cli
from boxmend.auditing.calibration import Share
from boxmend.auditing.fixes.table import FIXES_FILE, GOOD_IOU, Kind
from boxmend.auditing.folders import AUDIT_FILE, audit_run
from boxmend.auditing.run_evidence import (
    find_judged_rows,
    gather_run_evidence,
    judge_by_losses,
    read_annotated_share,
)
from boxmend.data.boxes import compute_iou
from boxmend.errors import DataError
from boxmend.runs import folder as runs
from boxmend.runs.opening import open_run_with_history
from tests.auditing.audit_scenes import LABELS, Noise, calibration_error, scene
from tests.fabricated_runs import KEPT, RELABELLED, UNJUDGED, Visit, drawn, finished_run


def set_summary(run: Path, **figures: float) -> Path:
    """Add figures of a last pass to a run's metrics."""
    runs.open_run(run).append_metrics({"step": 1, **figures})
    return run


def small(folder: Path, *visits: Visit) -> Path:
    return finished_run(folder / "run", drawn(folder, "coco"), visits)


def test_evidence_for_the_label_is_the_exponential_of_its_loss(tmp_path: Path) -> None:
    run = small(tmp_path, Visit(0, 0, KEPT, loss=math.log(4), confidence=0.9))
    opened = open_run_with_history(run)
    rows = find_judged_rows(opened)
    assert rows.tolist() == [0]
    found = gather_run_evidence(opened, rows)
    # 0.25 for its own label; 0.75 is spread over the other two, of which none was named
    assert found.for_labels(np.zeros(3, int), np.arange(3)) == pytest.approx([0.75, 0.75, 0.75])


def test_a_preferred_label_gets_its_share_of_the_rest(tmp_path: Path) -> None:
    run = small(tmp_path, Visit(0, 0, RELABELLED, label=2, loss=math.log(4), confidence=0.8))
    opened = open_run_with_history(run)
    found = gather_run_evidence(opened, find_judged_rows(opened))
    # 0.75 * 0.8 for the bus; 0.15 for the one class that is left, and for no other more than that
    assert found.for_labels(np.zeros(3, int), np.arange(3)) == pytest.approx([0.25, 0.15, 0.6])


def test_the_mean_probability_is_the_noise_that_the_run_estimated(tmp_path: Path) -> None:
    losses = (0.05, 0.1, 2.0, 4.0)
    run = small(tmp_path, *(Visit(0, row, KEPT, loss=one) for row, one in enumerate(losses)))
    set_summary(run, label_noise=0.4, tau=1.0)
    opened = open_run_with_history(run)
    rows = find_judged_rows(opened)
    found = judge_by_losses(opened, rows, gather_run_evidence(opened, rows))
    assert found is not None
    assert found.p_wrong.mean() == pytest.approx(0.4)
    assert (np.diff(found.p_wrong) > 0).all()
    # by hand: log odds of the evidence differ by those of the probabilities, as tau is 1
    odds = np.log(np.expm1(np.array(losses)))
    got = np.log(found.p_wrong / (1 - found.p_wrong))
    assert got - odds == pytest.approx(np.full(4, (got - odds)[0]))
    assert found.rate.value == 0.4


def test_log_odds_rise_as_steeply_as_the_run_says(tmp_path: Path) -> None:
    losses = (0.05, 0.1, 2.0, 4.0)
    run = small(tmp_path, *(Visit(0, row, KEPT, loss=one) for row, one in enumerate(losses)))
    set_summary(run, label_noise=0.1, tau=9.0)
    set_summary(run, label_noise=0.4, tau=0.5)  # what was said last counts
    opened = open_run_with_history(run)
    rows = find_judged_rows(opened)
    found = judge_by_losses(opened, rows, gather_run_evidence(opened, rows))
    assert found is not None
    assert found.rate.value == 0.4
    got = np.log(found.p_wrong / (1 - found.p_wrong))
    odds = np.log(np.expm1(np.array(losses)))
    assert np.diff(got) == pytest.approx(0.5 * np.diff(odds))


def test_a_preferred_label_is_as_probable_as_its_share_of_what_speaks_for_others(
    tmp_path: Path,
) -> None:
    run = small(tmp_path, Visit(0, 0, RELABELLED, label=2, loss=math.log(4), confidence=0.8))
    set_summary(run, label_noise=0.4, tau=1.0)
    opened = open_run_with_history(run)
    rows = find_judged_rows(opened)
    found = judge_by_losses(opened, rows, gather_run_evidence(opened, rows))
    assert found is not None
    # of 0.75 for other labels 0.6 is for the bus: 0.8 of the probability that the label is wrong
    assert found.labels.tolist() == [2]
    assert found.p_wrong == pytest.approx([0.4])
    assert found.p_fix == pytest.approx([0.4 * 0.8])


def test_a_run_without_an_estimate_is_judged_by_its_evidence_alone(tmp_path: Path) -> None:
    run = small(tmp_path, Visit(0, 0, KEPT, loss=0.1))
    opened = open_run_with_history(run)
    rows = find_judged_rows(opened)
    assert judge_by_losses(opened, rows, gather_run_evidence(opened, rows)) is None


def test_what_a_run_saw_is_computed_back_from_what_it_trained_on(tmp_path: Path) -> None:
    # the annotated box is (10, 10, 30, 50); 0.4 of it and 0.6 of (20, 10, 30, 50)
    box = (16.0, 10.0, 30.0, 50.0)
    run = small(tmp_path, Visit(0, 0, KEPT, loss=0.1, box=box))
    set_summary(run, keep=0.4)
    opened = open_run_with_history(run)
    assert read_annotated_share(opened.run) == 0.4
    found = gather_run_evidence(opened, find_judged_rows(opened))
    assert found.boxes[0] == pytest.approx([20, 10, 30, 50], abs=1e-4)


def test_boxes_that_are_nearly_the_annotated_ones_say_nothing(tmp_path: Path) -> None:
    run = small(tmp_path, Visit(0, 0, KEPT, loss=0.1, box=(16.0, 10.0, 30.0, 50.0)))
    set_summary(run, keep=0.96)
    opened = open_run_with_history(run)
    assert np.isnan(gather_run_evidence(opened, find_judged_rows(opened)).boxes).all()


def test_boxes_follow_the_annotated_ones_by_as_much_as_the_noise_looks_smaller(
    tmp_path: Path,
) -> None:
    # edges are 30 % off, and what the run saw lies half-way: the noise looks like 15 %
    one = scene(Noise(boxes=0.3), images=150)
    one.dataset.save(tmp_path / "data", format="coco", images_as="none")
    halves = (one.dataset.boxes + one.true_boxes) / 2
    visits = [
        Visit(0, row, KEPT, loss=0.1, confidence=0.9, box=tuple(box))
        for row, box in enumerate(halves.tolist())
    ]
    run = set_summary(finished_run(tmp_path / "run", str(tmp_path / "data"), visits), box_noise=0.3)
    opened = open_run_with_history(run)
    rows = find_judged_rows(opened)
    assert gather_run_evidence(opened, rows).pull == pytest.approx(0.5, abs=0.1)


def test_the_box_noise_of_a_run_is_the_one_that_the_run_estimated(tmp_path: Path) -> None:
    drawn_scene = scene(Noise(boxes=0.3), images=150)
    dataset, true_boxes = drawn_scene.dataset, drawn_scene.true_boxes
    dataset.save(tmp_path / "data", format="coco", images_as="none")
    halves = (dataset.boxes + true_boxes) / 2
    visits = [
        Visit(0, row, KEPT, loss=0.1, confidence=0.9, box=tuple(box))
        for row, box in enumerate(halves.tolist())
    ]
    run = finished_run(tmp_path / "run", str(tmp_path / "data"), visits)
    set_summary(run, box_noise=0.3, box_noise_low=0.26, box_noise_high=0.35)
    audit = audit_run(run).audit
    assert audit.box_noise == Share(0.3, 0.26, 0.35)
    is_bad = compute_iou(dataset.boxes, true_boxes) < GOOD_IOU
    rate = audit.rates["bad_boxes"]
    assert rate.low <= is_bad.mean() <= rate.high
    assert rate.value == pytest.approx(is_bad.mean(), abs=0.05)


def test_a_run_that_judged_nothing_cannot_be_audited(tmp_path: Path) -> None:
    run = small(tmp_path, Visit(0, 0, UNJUDGED, loss=float("nan")))
    with pytest.raises(DataError, match="judged no label"):
        audit_run(run)
    assert not (run / FIXES_FILE).exists()


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    run = small(tmp_path, Visit(0, 0, KEPT, loss=0.1))
    (run / "finished").unlink()
    with pytest.raises(DataError, match="unfinished"):
        audit_run(run)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A run over 1,200 annotations with a fifth of the labels wrong; and the true labels."""
    folder = tmp_path_factory.mktemp("large")
    one = scene(Noise(labels=0.2), images=300)
    random = np.random.default_rng(0)
    dataset = one.dataset
    dataset.save(folder / "data", format="coco", images_as="none")
    is_wrong = dataset.labels != one.true_labels
    losses = np.where(
        is_wrong, random.gamma(4, 1, len(dataset)), random.gamma(1, 0.15, len(dataset))
    )
    visits = [
        Visit(
            0,
            row,
            RELABELLED if loss > 1.5 else KEPT,
            label=int(one.true_labels[row]) if loss > 1.5 and is_wrong[row] else None,
            loss=float(loss),
            confidence=0.95,
        )
        for row, loss in enumerate(losses.tolist())
    ]
    run = finished_run(folder / "run", str(folder / "data"), visits)
    return set_summary(run, label_noise=0.2, tau=1.0), is_wrong, one.true_labels


def test_wrong_labels_of_a_run_are_listed_with_probabilities_that_hold(
    large: tuple[Path, np.ndarray, np.ndarray],
) -> None:
    run, is_wrong, true = large
    audited = audit_run(run)
    found = audited.audit
    assert calibration_error(found.p_wrong[Kind.WRONG_LABEL], is_wrong) < 0.08
    own = found.fixes.take((found.fixes.kinds == Kind.WRONG_LABEL) & (found.fixes.p_fix > 0.7))
    assert len(own) > 100
    assert (own.new_labels == true[own.rows]).mean() > 0.9
    assert (run / FIXES_FILE).is_file()
    document = audited.run.read_json(AUDIT_FILE)
    assert document is not None
    assert document["evidence"] == "training run"
    assert set(document["rates"]) == {"wrong_labels", "bad_boxes", "duplicates"}
    assert document["probe"] is None
    assert any("--predictions" in note for note in document["notes"])
    assert set(LABELS) == set(audited.dataset.label_names)


def test_people_are_told_only_of_what_a_run_looks_for(
    large: tuple[Path, np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["audit", str(large[0])]) == 0
    said = capsys.readouterr()
    assert "wrong label " in said.out
    assert "duplicate " in said.out
    assert "missing" not in said.out
    assert "spurious" not in said.out


def test_a_second_audit_of_a_run_gives_the_same_table(
    large: tuple[Path, np.ndarray, np.ndarray],
) -> None:
    audit_run(large[0])
    first = (large[0] / FIXES_FILE).read_bytes()
    audit_run(large[0])
    assert (large[0] / FIXES_FILE).read_bytes() == first
