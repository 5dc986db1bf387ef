"""People's verdicts: a file that only grows, and the verdicts that count in the end."""

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.auditing.fixes.verdicts import (
    ANSWERS,
    MODES,
    VERDICTS_FILE,
    Verdict,
    append_verdicts,
    latest_verdicts,
    read_verdicts,
)
from boxmend.errors import DataError, OutputError

LABELLED = Verdict("a", "accept", label="Stra\xdfe \udc80", box=(1, 2, 3.5, 4), who="Kim")


def test_a_run_without_the_file_has_no_verdicts(tmp_path: Path) -> None:
    assert read_verdicts(tmp_path) == []
    append_verdicts(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_a_line_has_only_the_given_keys(tmp_path: Path) -> None:
    append_verdicts(tmp_path, [Verdict("a", "reject"), LABELLED])
    first, second = (tmp_path / VERDICTS_FILE).read_bytes().splitlines()
    body = b'{"fix": "a", "verdict": "reject", "mode": "queue"'
    digest = f'"digest": "sha256:{hashlib.sha256(body).hexdigest()}"'
    assert first == body + b", " + digest.encode() + b"}"
    document = json.loads(second)
    del document["digest"]
    assert document == {
        "fix": "a",
        "verdict": "accept",
        "label": "Stra\xdfe \udc80",
        "box": [1, 2, 3.5, 4],
        "who": "Kim",
        "mode": "queue",
    }


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    answer = draw(st.sampled_from(ANSWERS))
    texts = st.none() | st.text(max_size=5)
    extras: dict[str, Any] = {"who": draw(texts), "when": draw(texts)}
    if answer == "accept":
        corner = draw(st.tuples(st.integers(-9, 9), st.floats(-9, 9)))
        box = (corner[0], corner[1], corner[0] + 1, corner[1] + 2)
        extras |= {"label": draw(texts), "box": draw(st.sampled_from([None, box]))}
    fix = draw(st.text(min_size=1, max_size=3))
    return Verdict(fix, answer, mode=draw(st.sampled_from(MODES)), **extras)


@settings(deadline=None)
@given(batches=st.lists(st.lists(verdicts(), max_size=4), max_size=4))
def test_what_was_appended_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Verdict]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for batch in batches:
        append_verdicts(folder, batch)
    assert read_verdicts(folder) == [one for batch in batches for one in batch]


def test_a_kill_at_any_byte_costs_the_torn_line_alone(tmp_path: Path) -> None:
    path = tmp_path / VERDICTS_FILE
    first, torn, later = Verdict("a", "reject"), LABELLED, Verdict("c", "accept")
    append_verdicts(tmp_path, [first])
    start = path.stat().st_size
    append_verdicts(tmp_path, [torn])
    whole = path.read_bytes()
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        survives = [torn] if end == len(whole) - 1 else []  # only its line end is missing
        assert read_verdicts(tmp_path) == [first, *survives]
        append_verdicts(tmp_path, [later])
        append_verdicts(tmp_path, [later])
        assert read_verdicts(tmp_path) == [first, *survives, later, later]


def test_verdicts_are_synced_before_they_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, int]] = []

    def fsync(handle: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        synced.append((place, os.fstat(handle).st_size if place.is_file() else 0))

    monkeypatch.setattr(os, "fsync", fsync)
    path = (tmp_path / VERDICTS_FILE).resolve()
    first = append_verdicts(tmp_path, [Verdict("a", "reject"), LABELLED])
    assert synced == [(path, first), (path.parent, 0)]  # the name of a new file as well
    second = append_verdicts(tmp_path, [Verdict("c", "accept")])
    assert synced[2:] == [(path, first + second)]


def test_lines_without_digests_are_verdicts_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = b'{"fix": "old", "verdict": "accept"}\n'
    (tmp_path / VERDICTS_FILE).write_bytes(line * 3)
    append_verdicts(tmp_path, [Verdict("new", "reject")])
    assert [verdict.fix for verdict in read_verdicts(tmp_path)] == ["old", "old", "old", "new"]
    assert [record.getMessage().count("3 of its lines") for record in caplog.records] == [1]


def test_an_edited_line_is_named(tmp_path: Path) -> None:
    append_verdicts(tmp_path, [Verdict("a", "reject"), Verdict("b", "reject")])
    path = tmp_path / VERDICTS_FILE
    path.write_bytes(
        path.read_bytes().replace(b'"b", "verdict": "reject"', b'"b", "verdict": "accept"')
    )
    with pytest.raises(DataError, match=r"line 2 is damaged, or was edited.*; remove that line"):
        read_verdicts(tmp_path)


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    def give(name: str) -> None:
        for k in range(200):
            append_verdicts(tmp_path, [Verdict(f"{name}{k}", "accept"), Verdict("x", "reject")])

    threads = [threading.Thread(target=give, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for one in threads:
        one.join()
    read = read_verdicts(tmp_path)
    fixes = [one.fix for one in read]
    for name in "ab":
        assert [fix for fix in fixes if fix[0] == name] == [f"{name}{k}" for k in range(200)]
    assert len(read) == 800
    assert set(fixes[1::2]) == {"x"}  # each write stays in one piece


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"verdict": "accept"}',
        b'{"fix": "", "verdict": "accept"}',
        b'{"fix": 7, "verdict": "accept"}',
        b'{"fix": "a"}',
        b'{"fix": "a", "verdict": "maybe"}',
        b'{"fix": "a", "verdict": ["accept"]}',
        b'{"fix": "a", "verdict": "reject", "label": "van"}',
        b'{"fix": "a", "verdict": "accept", "label": 3}',
        b'{"fix": "a", "verdict": "accept", "mode": "dream"}',
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, 3]}',
        b'{"fix": "a", "verdict": "accept", "box": "1234"}',
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, NaN, 4]}',
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, 1e999, 4]}',
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, 1' + b"0" * 400 + b", 4]}",
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, true, 4]}',
        b'{"fix": "a", "verdict": "accept", "box": [3, 2, 1, 4]}',
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, 1, 4]}',
        b'{"fix": "a", "verdict": "accept", "box": [1, 2, 3, 2]}',
        b'{"fix": "' + b"a" * 10_001 + b'", "verdict": "accept"}',
        b'{"fix": "\xff", "verdict": "accept"}',
        b"[" * 100_000,
        b"accept all",
    ],
)
def test_a_line_that_is_no_verdict_is_named(tmp_path: Path, line: bytes) -> None:
    good = b'{"fix": "a", "verdict": "skip"}\n'
    (tmp_path / VERDICTS_FILE).write_bytes(good + line + b"\n" + good)
    with pytest.raises(DataError, match=r"verdicts.jsonl: line 2 is not a verdict"):
        read_verdicts(tmp_path)


def test_a_file_that_cannot_be_read_or_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / VERDICTS_FILE).mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        read_verdicts(tmp_path)
    with pytest.raises(OutputError, match="could not be written"):
        append_verdicts(tmp_path, [LABELLED])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")
def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / VERDICTS_FILE)
    with pytest.raises(OutputError, match="could not be written"):
        append_verdicts(tmp_path, [LABELLED])


def answers(*texts: str) -> dict[str, str]:
    """What stands after these, given as "fix answer", by fix."""
    parsed = [Verdict(fix, answer) for fix, answer in map(str.split, texts)]
    return {fix: one.answer for fix, one in latest_verdicts(parsed).items()}


def test_the_later_verdict_stands() -> None:
    assert answers("a accept", "b reject", "a reject") == {"a": "reject", "b": "reject"}


def test_what_stands_is_in_the_order_in_which_it_was_given() -> None:
    texts = ["a accept", "b accept", "c accept", "a reject", "b skip", "c reject", "c undo"]
    parsed = [Verdict(fix, answer) for fix, answer in map(str.split, texts)]
    assert list(latest_verdicts(parsed)) == ["b", "c", "a"]


def test_an_undo_takes_back_the_last_one_of_its_fix() -> None:
    assert answers("a accept", "b accept", "a undo") == {"b": "accept"}
    assert answers("a accept", "a reject", "a undo") == {"a": "accept"}
    assert answers("a accept", "a reject", "a undo", "a undo") == {}
    assert answers("a undo", "a accept") == {"a": "accept"}


def test_to_skip_is_no_verdict() -> None:
    assert answers("a skip") == {}
    assert answers("a accept", "a skip") == {"a": "accept"}
    assert answers("a accept", "a skip", "a undo") == {"a": "accept"}  # the skip was undone
    assert answers("a accept", "a skip", "a undo", "a undo") == {}
