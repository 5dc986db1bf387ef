"""What the report of an audit reads, and what it counts, by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.auditing.fixes.choosing import (
    KINDS_BY_OPTION,
    YIELD_PRECISIONS,
    choose_fixes,
    count_yields,
)
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.errors import DataError, UsageError
from boxmend.web.report.audits import gallery as galleries
from boxmend.web.report.audits.gallery import (
    FixAnswer,
    audit_columns,
    audit_gallery_of,
    request_audit_pictures,
)
from boxmend.web.report.audits.record import NEVER
from boxmend.web.thumbnails import Thumbnails
from tests.web.report.audits.audited_folders import RECORDED, made_audit, record_of, share


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_audit(tmp_path)


def table_of(run: Path, **settings: Any) -> dict[str, Any]:
    """The columns of the gallery, of pictures that are all missing."""
    gallery = audit_gallery_of(record_of(run, **settings))
    requests = request_audit_pictures(gallery)
    return audit_columns(gallery, [Thumbnails([], [], "gone") for _ in requests])


def test_the_highest_precision_that_applies_each_fix(run: Path) -> None:
    # p_fix is 0.98, 0.97, 0.96, 0.7, 0.6, 0.55, 0.4, 0.3; the means of the first 4, 5, 6, 7 and 8
    # are 0.9025, 0.842, 0.793, 0.737 and 0.6825.
    assert YIELD_PRECISIONS == (0.95, 0.9, 0.8, 0.7)
    record = record_of(run)
    assert record.levels.tolist() == [0, 0, 0, 1, 2, 3, 3, NEVER]
    # Labels alone: 0.98, 0.97, 0.4 have a mean of 0.783. One missing object has 0.7, the others
    # less than 0.7.
    assert record.own_levels.tolist() == [0, 0, 0, 3, NEVER, NEVER, 3, NEVER]


def test_levels_agree_with_what_the_command_chooses(run: Path) -> None:
    append_verdicts(run, [Verdict("f7", "accept"), Verdict("f0", "reject")])
    record = record_of(run)
    assert record.levels[7] == 0
    assert record.levels[0] == NEVER
    for level, (precision, counts) in enumerate(count_yields(record.fixes, record.latest).items()):
        chosen = choose_fixes(record.fixes, record.latest, precision)
        assert np.flatnonzero(record.levels <= level).tolist() == chosen.rows.tolist()
        assert sum(counts.values()) == len(chosen.rows)
        for option, kind in KINDS_BY_OPTION.items():
            alone = choose_fixes(record.fixes, record.latest, precision, (option,)).rows
            is_shown = (record.own_levels <= level) & (record.fixes.kinds == kind)
            assert np.flatnonzero(is_shown).tolist() == alone.tolist()


def test_the_gallery_has_every_fix_with_its_numbers(run: Path) -> None:
    table = table_of(run)
    assert table["fix"] == [f"f{k}" for k in range(8)]
    assert table["files"] == ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png", "6.png",
                              "quo'te & <i>.png"]  # fmt: skip
    assert table["kind"] == [0, 0, 1, 2, 3, 4, 0, 0]
    assert table["old"] == [0, 0, 1, -1, 0, 2, 2, 0]
    assert table["new"] == [2, 2, 1, 2, -1, -1, 0, 2]
    assert table["p_fix"] == [0.98, 0.97, 0.96, 0.7, 0.6, 0.55, 0.4, 0.3]
    assert table["p_wrong"] == [0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert table["gain"] == [None, None, 0.25, None, None, None, None, None]
    ids = [str(number) for number in record_of(run).dataset.annotation_ids.tolist()]
    assert table["id"] == [ids[0], ids[2], ids[4], "", ids[8], ids[10], ids[12], ids[14]]
    assert table["kept"] == ["", "", "", "", "", ids[11], "", ""]
    assert table["answer"] == [FixAnswer.OPEN] * 8
    assert table["precisions"] == list(YIELD_PRECISIONS)
    assert table["options"] == ["labels", "boxes", "missing", "spurious", "duplicates"]
    assert "mark" not in table


def test_boxes_are_those_before_and_after(run: Path) -> None:
    boxes = {
        name: np.array(sides, np.float64).reshape(-1, 4).tolist()
        for name, sides in table_of(run)["boxes"].items()
    }
    unknown = [None] * 4
    same = [[None if np.isnan(side) else side for side in box] for box in boxes["final"]]
    assert same[0] == unknown  # a label changes no box
    assert boxes["annotated"][2] == [50, 40, 130, 110]
    assert boxes["final"][2] == boxes["final"][3] == [40, 30, 120, 100]
    assert [None if np.isnan(side) else side for side in boxes["annotated"][3]] == unknown
    assert same[4] == same[5] == unknown  # removals
    assert boxes["matched"][5] == [40, 30, 120, 100]  # the annotation that stays
    assert np.isnan(boxes["matched"][:5]).all()


def test_verdicts_are_shown_and_change_the_probabilities(run: Path) -> None:
    append_verdicts(
        run,
        [
            Verdict("f0", "accept"),
            Verdict("f1", "reject"),
            Verdict("f2", "accept", box=(1, 1, 9, 9)),
            Verdict("f3", "skip"),
        ],
    )
    table = table_of(run)
    assert table["answer"][:4] == [
        *(FixAnswer.ACCEPTED, FixAnswer.REJECTED, FixAnswer.CHANGED),
        FixAnswer.OPEN,
    ]
    assert table["p_fix"][6] < 0.4  # a sure label of two was rejected


def test_fixes_are_compared_with_the_truth(run: Path) -> None:
    # The data themselves are the truth: every label, box and annotation is right.
    table = table_of(run, truth=str(run.parent / "data"))
    assert table["mark"] == [2] * 8
    assert table["truth"][3] == -1
    boxes = np.array(table["boxes"]["true"], np.float64).reshape(-1, 4)
    assert boxes[2].tolist() == [50, 40, 130, 110]
    assert np.isnan(boxes[3]).all()


def test_of_very_many_fixes_the_applied_and_the_most_probable_are_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(galleries, "MAX_SHOWN", 5)
    assert table_of(run)["fix"] == ["f0", "f1", "f2", "f3", "f4"]


def test_an_audit_without_its_numbers_still_has_a_record(tmp_path: Path) -> None:
    run = made_audit(tmp_path)
    (run / "audit.json").unlink()
    assert record_of(run).recorded.rates == {}


@pytest.mark.parametrize(
    "change",
    [
        {"rates": []},
        {"rates": {"wrong_labels": share(0.1, 0.0, 1e300)}},
        {"rates": {"wrong_labels": {"value": "0.1", "low": 0, "high": 1}}},
        {"rates": {"wrong_labels": share(-0.1, 0.0, 1.0)}},
        {"probe": {"missing": {"planted": -1}}},
        {"notes": [3]},
        {"judged": 1.5},
    ],
)
def test_numbers_that_no_audit_writes_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    run = made_audit(tmp_path, recorded=RECORDED | change)
    with pytest.raises(DataError, match=r"audit\.json: is damaged .*; audit again"):
        record_of(run)


def test_half_a_character_in_the_numbers_is_refused(run: Path) -> None:
    (run / "audit.json").write_text('{"notes": [], "\\udcff": 1}')  # without a digest, as edited
    with pytest.raises(DataError, match=r"audit\.json: is damaged .*; audit again"):
        record_of(run)


def test_other_runs_cannot_be_compared_with_an_audit(run: Path) -> None:
    for settings in ({"baseline": run}, {"beside": [run]}):
        with pytest.raises(UsageError, match="--baseline and --beside are for training runs"):
            record_of(run, **settings)
