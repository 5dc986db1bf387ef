"""Audits of runs that planted errors: figures by hand, then a made run with a known truth."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from boxmend import cli
from boxmend.auditing.calibration import NOT_MEASURED, Share
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.folders import audit_run
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.run_probe import (
    ProbedRun,
    calibrate_labels,
    estimate_bad_boxes,
    judge_settled_boxes,
    measure_kept_share,
    measure_spreads,
    open_as_trained,
    remove_share,
)
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Box
from boxmend.runs import folder as runs
from boxmend.runs.opening import open_run_with_history
from tests.auditing.audit_scenes import Noise, scene
from tests.fabricated_runs import KEPT, RELABELLED, Visit, drawn, probed_run

HALF: Box = (40.0, 30.0, 60.0, 70.0)  # the centre of each image: 20 x 40 pixels


def set_figures(run: Path, **figures: float) -> Path:
    runs.open_run(run).append_metrics({"step": 1, **figures})
    return run


def open_probed(run: Path) -> ProbedRun:
    probed = open_as_trained(open_run_with_history(run))
    assert probed is not None
    return probed


def with_moved_boxes(
    folder: Path, settled: Box, number: int = 4, settings: dict[str, Any] | None = None
) -> ProbedRun:
    """All annotations are HALF; the training saw x1 at 44, and settled on the same box."""
    visits = [Visit(0, row, loss=0.1, box=settled) for row in range(number)]
    seen: Box = (44.0, 30.0, 60.0, 70.0)
    address = drawn(folder, "coco", boxes=[HALF] * number)
    boxes = dict.fromkeys(range(number), seen)
    return open_probed(probed_run(folder / "run", address, visits, boxes=boxes, settings=settings))


def test_a_run_without_planted_errors_has_no_probe(tmp_path: Path) -> None:
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), [Visit(0, 0, loss=0.1)])
    assert open_as_trained(open_run_with_history(run)) is None


def test_the_kept_share_follows_from_the_shift_that_is_left(tmp_path: Path) -> None:
    # x1 was moved by 4 of 20 pixels: 0.2 sides. Noise of 0.4 lets a mean excess of
    # 0.2 ** 2 / 1.6 = 0.025 remain, so 0.175 can be undone. The run undid 2 pixels, 0.1 sides.
    probed = with_moved_boxes(tmp_path, (42.0, 30.0, 60.0, 70.0))
    kept = 1 - 0.1 / 0.175
    # all boxes agree, so the variance is that of a hundred thousandth
    assert measure_kept_share(probed, 0.4) == pytest.approx(kept, abs=0.001)


@pytest.mark.parametrize("settings", [{"method": "br"}, {"mend": {"boxes": "average"}}])
def test_a_training_that_averages_boxes_can_undo_all(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    probed = with_moved_boxes(tmp_path, (42.0, 30.0, 60.0, 70.0), settings=settings)
    assert measure_kept_share(probed, 0.4) == pytest.approx(1 - 0.1 / 0.2, abs=0.001)


def test_a_box_that_stays_keeps_all_of_its_error(tmp_path: Path) -> None:
    probed = with_moved_boxes(tmp_path, (44.0, 30.0, 60.0, 70.0))
    assert measure_kept_share(probed, 0.4) == pytest.approx(1.0, abs=0.001)


def test_boxes_that_disagree_shrink_the_kept_share_to_the_usual_one(tmp_path: Path) -> None:
    # The first stays at 0.2 sides, the second is back at 0: 0 and 0.2 are undone of 0.175 each.
    seen: Box = (44.0, 30.0, 60.0, 70.0)
    visits = [Visit(0, 0, loss=0.1, box=seen), Visit(0, 1, loss=0.1, box=HALF)]
    address = drawn(tmp_path, "coco", boxes=[HALF] * 2)
    probed = open_probed(probed_run(tmp_path / "run", address, visits, boxes={0: seen, 1: seen}))
    share = 0.1 / 0.175
    variance = 2 * (0.1 * 0.175) ** 2 / (2 * 0.175**2) ** 2  # errors of -0.1 and 0.1
    weight = 0.05**2 / (0.05**2 + variance)
    expected = weight * (1 - share) + (1 - weight) * 0.2
    assert measure_kept_share(probed, 0.4) == pytest.approx(expected)
    assert abs(expected - 0.2) < 0.01


def test_without_planted_boxes_the_kept_share_is_the_usual_one(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = probed_run(tmp_path / "run", address, [Visit(0, 0, loss=0.1)], labels={0: 1})
    assert measure_kept_share(open_probed(run), 0.4) == 0.2


def test_the_spread_is_the_deviation_of_the_visits_in_sides(tmp_path: Path) -> None:
    # six epochs settle by two visits. x1 at 40 and 44, so 2 from the mean of a side of 18 pixels
    boxes: list[Box] = [(40, 30, 60, 70), (44, 30, 60, 70)]
    visits = [Visit(epoch, 0, loss=0.1, box=boxes[epoch % 2]) for epoch in range(6)]
    visits.append(Visit(5, 1, loss=0.1))
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), visits, labels={3: 1})
    spreads = measure_spreads(open_run_with_history(run))
    expected = math.sqrt(2 * (2 / 18) ** 2 / 4 / (2 - 1))
    assert spreads[0] == pytest.approx(expected)
    assert spreads[1:] == pytest.approx([expected] * 3)  # one visit or none: a large one


def test_boxes_of_one_visit_have_a_large_spread(tmp_path: Path) -> None:
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), [Visit(0, 0)], labels={3: 1})
    assert measure_spreads(open_run_with_history(run)).tolist() == [0.06] * 4


def test_settled_boxes_are_the_fixes_and_doubt_grows_with_the_noise(tmp_path: Path) -> None:
    far: Box = (60.0, 30.0, 80.0, 70.0)
    visits = [Visit(epoch, row, loss=0.1, box=far) for epoch in range(6) for row in (0, 1)]
    visits.insert(0, Visit(0, 2, loss=0.1))
    address = drawn(tmp_path, "coco", boxes=[HALF] * 4)
    probed = open_probed(probed_run(tmp_path / "run", address, visits, labels={1: 2}))
    rows = np.array([0, 1, 2])
    little, much = (
        judge_settled_boxes(probed, rows, Share(noise, noise, noise)) for noise in (0.1, 1.5)
    )
    assert little.boxes.tolist() == [list(far), list(far), list(HALF)]
    assert little.p_bad.tolist() == [1.0, 1.0, 1.0]  # 2 was not moved, and is like the others
    assert little.p_fix.tolist() == [0.98, 0.98, 0.0]  # 2 % are of other objects
    assert 0.1 < much.p_fix[0] < 0.9
    assert little.iou_gain[0] > much.iou_gain[0] > 0


def test_true_boxes_lie_around_the_settled_one_as_far_as_visits_differ(tmp_path: Path) -> None:
    near: list[Box] = [(56.0, 30.0, 80.0, 70.0), (64.0, 30.0, 80.0, 70.0)]
    visits = [Visit(epoch, 0, loss=0.1, box=near[epoch % 2]) for epoch in range(6)]
    address = drawn(tmp_path, "coco", boxes=[HALF] * 2)
    probed = open_probed(
        probed_run(tmp_path / "run", address, [*visits, Visit(5, 1, loss=0.1)], labels={1: 2})
    )
    judged = judge_settled_boxes(probed, np.array([0]), Share(0.0, 0.0, 0.0))
    # The mean is 20 x 40 pixels. x1 is 4 pixels off at each of two visits, 0.2 sides.
    spread = math.sqrt(2 * 0.2**2 / 4 / (2 - 1))
    error = math.hypot(1.4 * spread, 0.01)
    random = np.random.default_rng(0)
    moved = np.array([60, 30, 80, 70]) + error * np.array([20, 40, 20, 40]) * random.normal(
        size=(20_000, 4)
    )
    overlap = np.array([60, 30, 80, 70]) + 0 * moved
    assert judged.boxes[0].tolist() == [60, 30, 80, 70]
    is_good = compute_iou(overlap, moved) >= 0.7
    assert judged.p_fix[0] == pytest.approx(is_good.mean(), abs=0.1)
    assert 0.1 < is_good.mean() < 0.7


def test_a_box_is_as_bad_as_its_distance_without_the_kept_share(tmp_path: Path) -> None:
    # Settled 5 of 20 pixels away, the IoU is 0.75. With a usual kept share of 0.2 the true edge is
    # 5 / 0.8 = 6.25 pixels away, and the IoU is 13.75 / 20 = 0.69.
    visits = [Visit(epoch, 0, loss=0.1, box=(45, 30, 60, 70)) for epoch in range(6)]
    visits.append(Visit(5, 1, loss=0.1))
    address = drawn(tmp_path, "coco", boxes=[HALF] * 2)
    probed = open_probed(probed_run(tmp_path / "run", address, visits, labels={1: 2}))
    judged = judge_settled_boxes(probed, np.array([0]), Share(0.1, 0.1, 0.1))
    assert judged.p_bad[0] > 0.7
    assert judged.boxes[0].tolist() == [45, 30, 60, 70]


def test_bad_boxes_are_unknown_if_no_box_was_moved(tmp_path: Path) -> None:
    noise = Share(0.4, 0.3, 0.5)
    address = drawn(tmp_path, "coco")
    still = probed_run(tmp_path / "still", address, [Visit(0, 0)], labels={3: 1})
    assert estimate_bad_boxes(open_run_with_history(still), noise) == NOT_MEASURED
    visits = [Visit(0, 0, box=(0, 0, 90, 90))]
    moved = probed_run(tmp_path / "moved", address, visits, labels={3: 1})
    share = estimate_bad_boxes(open_run_with_history(moved), noise)
    assert 0.7 < share.low < share.value <= share.high


def test_a_rate_without_planted_labels() -> None:
    # 28 of 100 are wrong, of which 10 are planted
    share = remove_share(Share(0.28, 0.1, 0.46), 0.1)
    assert (share.value, share.low, share.high) == pytest.approx((0.2, 0.0, 0.4))


def made_labels(
    folder: Path, num_right: int, noise: float = 0.75
) -> tuple[ProbedRun, LabelOpinion]:
    """Of 40 labels, 20 were planted; the run prefers the user's one for the first `num_right`."""
    boxes: list[Box] = [(k, k, k + 20, k + 20) for k in range(40)]
    address = drawn(folder, "coco", boxes=boxes)
    user = np.arange(40) % 3
    visits = [Visit(0, row, loss=0.1) for row in range(40)]
    seen = {row: int(user[row] + 1) % 3 for row in range(20)}
    settings = {"label_noise": "auto"}
    run = probed_run(folder / "run", address, visits, labels=seen, settings=settings)
    set_figures(run, label_noise=noise)
    better = np.where(np.arange(40) < num_right, user, (user + 2) % 3)
    p_wrong = np.where(np.arange(40) < 20, 0.9, 0.1)
    opinion = LabelOpinion(p_wrong, better, p_wrong * 0.7, Share(noise, 0.4, 0.8))
    return open_probed(run), opinion


def test_planted_labels_shift_the_odds_that_a_preferred_label_is_right(tmp_path: Path) -> None:
    rows = np.arange(40)
    shares = {}
    for num_right in (2, 14, 20):
        probed, opinion = made_labels(tmp_path / str(num_right), num_right)
        judged = calibrate_labels(probed, rows, opinion)
        shares[num_right] = judged.p_fix[30] / judged.p_wrong[30]
        odds = logit(0.7) + np.linspace(-3, 3, 121)
        expected = (1 - 0.375) * expit(odds)  # see the next test; so many labels were right
        fit = num_right * np.log(expected) + (20 - num_right) * np.log(1 - expected)
        best = expit(odds[(fit - np.linspace(-3, 3, 121) ** 2 / 0.5).argmax()])
        assert shares[num_right] == pytest.approx(best)
    assert 0.3 < shares[2] < shares[14] < shares[20] < 0.9  # 20 labels do not decide alone


def test_the_label_noise_is_a_mean_of_the_runs_estimate_and_of_the_tail(tmp_path: Path) -> None:
    # The run says 75 % (40 to 80 %). 50 % are planted, so half of the others are wrong (0 to 60 %).
    # No label of the user looks like the planted ones: the tail says 0. It has a weight of 20 of
    # 20 + 60 labels.
    probed, opinion = made_labels(tmp_path, 20)
    judged = calibrate_labels(probed, np.arange(40), opinion)
    assert judged.rate.value == pytest.approx(0.5 * 60 / 80)
    assert judged.rate.low == 0.0
    assert judged.rate.high == pytest.approx(0.6)
    assert judged.p_wrong[20:].mean() == pytest.approx(0.375)  # of the user's labels
    assert judged.p_wrong[0] > 0.9


def test_without_an_estimate_labels_stay_as_judged(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = probed_run(tmp_path / "run", address, [Visit(0, 1, loss=0.1)], labels={1: 2})
    opinion = LabelOpinion(np.array([0.5]), np.array([1]), np.array([0.4]), Share(0.5, 0.4, 0.6))
    assert calibrate_labels(open_probed(run), np.array([1]), opinion) is opinion


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A run over 600 annotations, 30 of which have a planted label and 30 a planted box.

    The run finds 24 of the labels, and all boxes; it also finds 60 labels that are really wrong.
    The other six planted labels are those of another annotation with the same box.
    """
    folder = tmp_path_factory.mktemp("probed")
    drawn_scene = scene(Noise(labels=0.1), images=150)
    dataset, true = drawn_scene.dataset, drawn_scene.true_labels
    right = np.flatnonzero(dataset.labels == true)
    for_labels, for_boxes = right[:30].tolist(), right[30:60].tolist()
    labels = {row: int(true[row] + 1) % len(dataset.label_names) for row in for_labels}
    twins = np.array([labels[row] for row in for_labels[24:]])
    dataset = dataset.add(dataset.image_rows[right[24:30]], twins, dataset.boxes[right[24:30]])
    dataset.save(folder / "data", format="coco", images_as="none")
    true, n = np.append(true, twins), len(dataset)
    sides = dataset.boxes[:, 2:] - dataset.boxes[:, :2]
    boxes = {
        row: tuple((dataset.boxes[row] + [0.4 * sides[row, 0], 0, 0, 0]).tolist())
        for row in for_boxes
    }
    visits = []
    for epoch in range(6):
        for row in range(n):
            seen = labels.get(row, int(dataset.labels[row]))
            is_found = seen != true[row] and row not in for_labels[24:]
            box = dataset.boxes[row] + 0.01 * np.tile(sides[row], 2)
            visits.append(
                Visit(
                    *(epoch, row, RELABELLED if is_found else KEPT),
                    label=int(true[row]) if is_found else seen,
                    box=tuple(box.tolist()),
                    loss=4.0 if is_found else 0.1,
                    confidence=0.95,
                )
            )
    run = probed_run(
        folder / "run",
        str(folder / "data"),
        visits,
        labels=labels,
        boxes=boxes,
        settings={"label_noise": "auto"},
    )
    bounds = {"label_noise_low": 0.12, "label_noise_high": 0.16}
    set_figures(run, label_noise=0.14, tau=1.0, box_noise=0.2, **bounds)
    return run, for_labels + for_boxes


def test_an_audit_counts_the_planted_errors_that_it_finds(
    large: tuple[Path, list[int]],
) -> None:
    probe = audit_run(large[0]).audit.probe
    assert probe is not None
    labels, boxes = probe[Kind.WRONG_LABEL], probe[Kind.BAD_BOX]
    assert (list(labels), list(boxes)) == (["any other class"], ["grossly off"])
    counts = labels["any other class"]
    assert (counts.planted, counts.found, counts.right) == (30, 24, 24)
    gross = boxes["grossly off"]
    assert (gross.planted, gross.found, gross.right) == (30, 30, 30)


def test_planted_errors_are_in_no_table_of_an_audit(large: tuple[Path, list[int]]) -> None:
    run, planted = large
    audited = audit_run(run)
    audit, dataset = audited.audit, audited.dataset
    assert not set(planted) & set(audit.fixes.rows.tolist())
    assert audit.num_judged == len(dataset) - len(planted)
    for column in audit.p_wrong.values():
        assert np.isnan(column[planted]).all()
        assert np.isfinite(np.delete(column, planted)).all()
    assert not set(planted) & set(audit.fixes.kept_rows.tolist())
    assert Kind.DUPLICATE not in audit.fixes.kinds
    found = audit.fixes.take(audit.fixes.kinds == Kind.WRONG_LABEL)
    assert np.array_equal(found.old_labels, dataset.labels[found.rows])
    # 10 % are wrong; of all labels that the training saw, 15 % are
    assert audit.rates["wrong_labels"].value == pytest.approx(0.1, abs=0.02)


def test_people_see_the_probe_of_a_run(
    large: tuple[Path, list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["audit", str(large[0])]) == 0
    said = capsys.readouterr()
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert any(line.startswith("wrong label any other class 30 80.0 %") for line in lines)
    assert any(line.startswith("bad box grossly off 30 100.0 %") for line in lines)
    assert "60 annotations are not judged" in said.err
    assert "--probe 0.05" not in said.err


def test_a_run_that_moved_no_box_says_that_it_shows_no_bad_ones(tmp_path: Path) -> None:
    visits = [Visit(0, row, loss=0.1) for row in range(4)]
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), visits, labels={1: 2})
    set_figures(run, box_noise=0.0)
    audited = audit_run(run)
    assert audited.audit.rates["bad_boxes"] == NOT_MEASURED
    assert any("the training moved no box" in note for note in audited.notes)


def test_an_audit_without_a_probe_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = probed_run(tmp_path / "run", drawn(tmp_path, "coco"), [Visit(0, 0, loss=0.1)])
    assert cli.run(["audit", str(run)]) == 0
    assert "trained with --probe 0.05" in capsys.readouterr().err
