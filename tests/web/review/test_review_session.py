"""The session: verdicts go to the file at once, figures follow, samples and doubts are in order."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION, choose_fixes
from boxmend.auditing.fixes.sampling import check_order, mix_in_checks, sample_order
from boxmend.auditing.fixes.table import FIXES_FILE, Kind
from boxmend.auditing.fixes.verdicts import VERDICTS_FILE, Verdict, append_verdicts, read_verdicts
from boxmend.errors import DataError, UsageError
from boxmend.web.review.columns import columns_json, least_size
from boxmend.web.review.serving import open_session
from boxmend.web.review.session import Answer, ReviewSession, effects
from tests.web.review.reviewed_runs import BOX, FIXES, MOVED, fix, fixes_of, plain_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return plain_run(tmp_path)


def lines(run: Path) -> list[dict[str, object]]:
    document = [json.loads(line) for line in (run / VERDICTS_FILE).read_text().splitlines()]
    return [{name: one[name] for name in one if name != "digest"} for one in document]


def test_a_verdict_is_in_the_file_before_the_answer(run: Path) -> None:
    session = open_session(run)
    session.decide([Answer(0, "accept"), Answer(2, "reject", mode="sample")])
    assert lines(run) == [
        {"fix": "f0", "verdict": "accept", "mode": "queue"},
        {"fix": "f2", "verdict": "reject", "mode": "sample"},
    ]


def test_another_class_is_written_by_its_name_and_a_box_in_pixels(run: Path) -> None:
    open_session(run).decide([Answer(3, "accept", label=1, box=(1, 2, 30.5, 40))])
    (line,) = lines(run)
    assert line["label"] == "</script><img src=x onerror=alert(1)>"
    assert line["box"] == [1, 2, 30.5, 40]


def test_the_proposed_class_and_box_are_a_plain_accept(run: Path) -> None:
    session = open_session(run)
    session.decide([Answer(0, "accept", label=2, box=BOX), Answer(2, "accept", label=1, box=BOX)])
    session.decide([Answer(3, "accept", label=0, box=BOX), Answer(4, "accept", box=MOVED)])
    assert [(line.get("label"), line.get("box")) for line in lines(run)] == [
        (None, None),
        (None, None),
        ("van", None),
        (None, list(MOVED)),  # it was to go, and stays where it is
    ]


def test_who_brings_the_time_along_and_without_neither_is_written(run: Path) -> None:
    open_session(run).decide([Answer(0, "skip")])
    open_session(run, who="Ada").decide([Answer(1, "skip")])
    without, with_name = lines(run)
    assert set(without) == {"fix", "verdict", "mode"}
    assert with_name["who"] == "Ada"
    assert str(with_name["when"]).endswith("+00:00")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(8, "accept"), "there is no fix 8"),
        (Answer(-1, "accept"), "there is no fix -1"),
        (Answer(0, "accept", label=3), "there is no class 3"),
        (Answer(0, "accept", label=-1), "there is no class -1"),
        (Answer(0, "accept", box=(5, 5, 5, 9)), "no area"),
        (Answer(0, "accept", box=(5, 5, 202, 9)), "is outside the image"),
        (Answer(0, "accept", box=(5, 5, 9, 1e300)), "is outside the image"),
        (Answer(0, "accept", box=(5, 5, 5.004, 9)), "no area"),  # once it is rounded
        (Answer(0, "accept", box=(-0.9, 5, 0, 9)), "no area"),  # once it is cut
        (Answer(0, "accept", box=(5, 150, 9, 151)), "no area"),
        (Answer(0, "reject", label=1), "only accept may"),
    ],
)
def test_an_answer_that_makes_no_sense_writes_nothing(run: Path, answer: Answer, why: str) -> None:
    session = open_session(run)
    with pytest.raises(UsageError, match=why):
        session.decide([Answer(1, "accept"), answer])
    assert not (run / VERDICTS_FILE).exists()


def test_a_box_at_the_edge_of_the_image_is_accepted(run: Path) -> None:
    open_session(run).decide([Answer(0, "accept", box=(0, 0, 200, 150))])
    assert lines(run)[0]["box"] == [0, 0, 200, 150]


def test_news_have_the_state_of_the_changed_fixes(run: Path) -> None:
    session = open_session(run)
    session.decide([Answer(0, "accept"), Answer(1, "reject")])
    session.decide([Answer(0, "reject")])
    news = session.news(2)
    assert (news["seen"], news["is_reset"]) == (3, False)
    assert [(verdict["row"], verdict["answer"]) for verdict in news["verdicts"]] == [(0, "reject")]
    session.decide([Answer(0, "undo"), Answer(1, "undo"), Answer(4, "skip")])
    news = session.news(3)
    result = [(verdict["row"], verdict["answer"]) for verdict in news["verdicts"]]
    assert result == [(0, "accept"), (1, None), (4, "skip")]
    assert session.news(6) | {"figures": None} == {
        "seen": 6,
        "is_reset": False,  # the page knows all of them
        "verdicts": [],
        "figures": None,
    }
    assert session.news(7)["is_reset"]  # more than there are: the file was replaced
    assert session.news(0)["is_reset"]
    assert [verdict["row"] for verdict in session.news(0)["verdicts"]] == [0, 1, 4]


def test_a_reload_and_another_session_know_all(run: Path) -> None:
    open_session(run).decide([Answer(0, "accept", label=1)])
    (result,) = open_session(run).news(0)["verdicts"]
    assert (result["row"], result["answer"], result["label"], result["box"]) == (
        0,
        "accept",
        1,
        None,
    )


def test_verdicts_of_others_are_read_and_kept(run: Path) -> None:
    session = open_session(run)
    session.decide([Answer(0, "accept")])
    append_verdicts(run, [Verdict("f5", "reject", mode="import"), Verdict("gone", "accept")])
    assert [verdict["row"] for verdict in session.news(1)["verdicts"]] == [5]
    append_verdicts(run, [Verdict("f6", "reject", mode="import")])
    session.decide([Answer(1, "accept")])
    assert [line["fix"] for line in lines(run)] == ["f0", "f5", "gone", "f6", "f1"]
    assert session.figures()["decided"] == 4  # a fix of another audit does not count


def test_verdicts_of_others_at_the_same_moment_are_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(run)

    def after_another(path: Path, verdicts: list[Verdict]) -> int:
        append_verdicts(path, [Verdict("f5", "reject", mode="import")])
        return append_verdicts(path, verdicts)

    monkeypatch.setattr("boxmend.web.review.session.append_verdicts", after_another)
    session.decide([Answer(0, "accept")])
    assert [verdict["row"] for verdict in session.news(0)["verdicts"]] == [5, 0]


def test_verdicts_of_a_removed_file_are_forgotten(run: Path) -> None:
    session = open_session(run)
    session.decide([Answer(0, "accept")])
    (run / VERDICTS_FILE).unlink()
    assert session.news(1) == session.news(0)
    assert session.news(1)["is_reset"]
    assert session.figures()["decided"] == 0


def test_figures_by_hand(run: Path) -> None:
    session = open_session(run)
    before = session.figures()
    # Means of 0.98 0.97 0.96 0.70: 0.9025 is less than 0.95, so three are taken:
    # (0.98 + 0.97 + 0.96) / 3.
    assert (before["number"], before["decided"], before["taken"], before["left"]) == (8, 0, 3, 5)
    assert before["expected"] == pytest.approx(0.97)
    assert before["measured"] == {"all": [0, 0, 0.0, 1.0]}
    session.decide([Answer(0, "accept", mode="sample"), Answer(1, "reject", mode="sample")])
    session.decide([Answer(3, "accept", label=1), Answer(4, "accept"), Answer(5, "skip")])
    after = session.figures()
    result = [after[name] for name in ("decided", "accepted", "changed", "rejected")]
    assert result == [4, 2, 1, 1]
    assert after["measured"]["all"][:2] == [1, 2]
    # Wilson: z^2 = 3.84, half width z sqrt(0.25/2 + 3.84/16) / (1 + 3.84/2) = 1.184 / 2.92 = 0.405
    assert after["measured"]["all"][2:] == pytest.approx([0.0945, 0.9055], abs=1e-3)


def test_thresholds_follow_the_verdicts(tmp_path: Path) -> None:
    made = [fix(Kind.WRONG_LABEL, row, label=2, p_fix=0.97) for row in (0, 2, 5, 7, 12, 14)]
    made.append(fix(Kind.BAD_BOX, 4, box=BOX, p_fix=0.96))
    session = open_session(plain_run(tmp_path, made))
    assert session.figures()["taken"] == 7
    session.decide([Answer(row, "reject") for row in range(4)])
    # Four rejections lower the other two of their kind.
    assert session.figures()["taken"] == 1  # the box


def test_the_most_doubtful_repair_most(run: Path) -> None:
    session = open_session(run)
    # Not taken: 0.7 0.6 0.55 0.4 0.3 (a repair as often as right); taken: 0.02 0.03 and, a box of
    # half the worth, 0.04 / 2 (a mistake as often as wrong).
    assert session.doubtful() == [3, 4, 5, 6, 7, 1, 0, 2]
    session.decide([Answer(3, "skip"), Answer(4, "accept")])
    assert 4 not in session.doubtful()
    assert 3 in session.doubtful()


def test_a_box_is_worth_what_it_gains() -> None:
    assert effects(fixes_of(FIXES))[:4].tolist() == [1.0, 1.0, 0.5, 1.0]


def test_a_sample_has_the_fixes_to_apply_in_a_fixed_order() -> None:
    many = [
        fix(Kind.WRONG_LABEL, row, label=1, p_fix=0.99 if row < 60 else 0.2) for row in range(100)
    ]
    fixes = fixes_of(many)
    taken = choose_fixes(fixes, {}, DEFAULT_PRECISION).rows
    order = sample_order(fixes)
    assert sorted(order.tolist()) == taken.tolist()
    assert order.tolist() != taken.tolist()
    turned = np.arange(100)[::-1]
    again = sample_order(fixes.take(turned))
    assert [fixes.take(turned).ids[row] for row in again] == [fixes.ids[row] for row in order]
    # A random half has about half of its fixes from the first half of the table: 15 of 30.
    assert 8 <= sum(row < 30 for row in order[:30].tolist()) <= 22


def test_a_sample_has_no_fix_that_would_not_be_applied() -> None:
    fixes = fixes_of([fix(Kind.SPURIOUS, 0, p_fix=0.3)] * 3)
    assert sample_order(fixes).tolist() == []


def test_random_checks_are_likely_fixes_and_every_fourth_of_a_queue() -> None:
    fixes = fixes_of([fix(Kind.SPURIOUS, row, p_fix=row / 100) for row in range(100)])
    checks = check_order(fixes)
    assert sorted(checks.tolist()) == list(range(50, 100))
    assert checks.tolist() != sorted(checks.tolist())
    assert mix_in_checks(np.arange(9), np.array([2, 20, 8, 6])).tolist() == [
        *(0, 1, 2, 8, 3, 4, 5, 6, 7)  # 2 is used when it is drawn, and 20 is not in the queue
    ]
    assert mix_in_checks(np.arange(5), np.array([4])).tolist() == [0, 1, 2, 4, 3]
    assert mix_in_checks(np.arange(5), np.array([], np.int64)).tolist() == [0, 1, 2, 3, 4]


def test_errors_that_remain_and_verdicts_that_are_worth_it_by_hand(run: Path) -> None:
    session = open_session(run)
    figures = session.figures()
    # Not taken: P(wrong) 0.8 0.7 0.6 0.5 0.4; taken with 0.98 0.97 0.96.
    assert figures["remaining"] == pytest.approx({"left": 3.0, "made": 0.09})
    assert (figures["likely"], figures["left"]) == (4, 5)
    assert figures["worthwhile"] == 5  # 0.7 0.6 0.55 0.4 0.3
    session.decide([Answer(row, "reject", mode="pattern") for row in range(3, 7)])
    figures = session.figures()
    assert figures["worthwhile"] == 1
    assert figures["remaining"] == pytest.approx({"left": 0.4, "made": 0.09})


def test_probabilities_follow_the_verdicts(run: Path) -> None:
    session = open_session(run)
    assert session.probabilities() == [0.98, 0.97, 0.96, 0.7, 0.6, 0.55, 0.4, 0.3]
    session.decide([Answer(0, "accept"), Answer(6, "reject")])
    assert session.probabilities()[0] == 1.0
    assert session.probabilities()[6] == 0.0
    assert session.probabilities()[7] < 0.3


def test_no_fixes_are_no_trouble(tmp_path: Path) -> None:
    session = open_session(plain_run(tmp_path, []))
    assert session.figures()["number"] == 0
    assert session.doubtful() == []
    assert session.news(0)["verdicts"] == []


def test_the_size_of_an_image_without_one_holds_its_boxes() -> None:
    boxes = np.array([[1, 2, 30.2, 40], [np.nan] * 4, [0, 0, 20, 50.5]])
    assert least_size(boxes, (0, 0)) == (31, 51)
    assert least_size(boxes, (640, 480)) == (640, 480)
    assert least_size(np.zeros((0, 4)), (0, 0)) == (16, 16)


def test_a_run_without_a_table_says_which_command_makes_one(run: Path) -> None:
    (run / FIXES_FILE).unlink()
    with pytest.raises(UsageError, match="boxmend audit"):
        open_session(run)


def test_an_edited_dataset_is_refused(run: Path) -> None:
    path = next((run.parent / "data").rglob("*.json"))
    document = json.loads(path.read_text())
    document["annotations"][0]["bbox"][0] += 1
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match="not the data"):
        open_session(run)


def test_a_session_does_not_change_its_fixes(run: Path) -> None:
    session: ReviewSession = open_session(run)
    before = session.fixes.p_fix.copy()
    session.decide([Answer(0, "reject")])
    session.figures()
    assert (session.fixes.p_fix == before).all()


def test_odd_names_are_shown_fit_and_written_as_they_are(run: Path) -> None:
    opened = open_session(run)
    names = ("half \ud800", "\u202etfel", "two\nlines")
    session = ReviewSession(run, replace(opened.dataset, label_names=names), opened.fixes)
    result = json.loads(columns_json("run\n", session.dataset, session.fixes))
    assert result["labels"] == ["half \ufffd", "\ufffdtfel", "two\ufffdlines"]
    assert result["name"] == "run\ufffd"
    session.decide([Answer(row, "accept", label=row) for row in range(3)])
    assert [verdict.label for verdict in read_verdicts(run)] == list(names)
    assert [verdict["label"] for verdict in session.news(0)["verdicts"]] == [0, 1, 2]
