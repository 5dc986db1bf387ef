"""The folder of a run: nothing overwritten, nothing torn."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.errors import DataError, OutputError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs.folder import Run, create, ensure_open, open_run, sole_writer
from tests.runs.run_folders import FACTS, SETTINGS, content


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(tmp_path / "run", SETTINGS, FACTS)


def test_a_new_run_holds_its_settings_and_facts(tmp_path: Path) -> None:
    run = create(tmp_path / "deep" / "run", SETTINGS, FACTS)
    assert sorted(content(run.path)) == ["run.json", "settings.json"]
    assert json.loads((run.path / "settings.json").read_text()) == SETTINGS
    document = json.loads((run.path / "run.json").read_text())
    assert document.pop("digest").startswith("sha256:")
    assert document == {"boxmend_run": 1, "facts": FACTS, "resumed_on": []}
    again = open_run(str(run.path))
    assert again == run
    assert (again.settings(), again.facts()) == (SETTINGS, FACTS)
    assert not again.is_finished
    assert again.read_metrics() == []


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    assert create(tmp_path, SETTINGS, FACTS).settings() == SETTINGS


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_run_is_never_overwritten(run: Run, resume: bool) -> None:
    run.append_metrics({"step": 1})
    run.finish({"ap50": 0.7})
    before = content(run.path)
    with pytest.raises(OutputError, match="has a finished run, which is never overwritten"):
        create(run.path, SETTINGS, FACTS, resume=resume)
    with pytest.raises(OutputError, match="has a finished run"):
        ensure_open(run.path, resume=resume)
    assert content(run.path) == before
    assert open_run(run.path).is_finished
    assert run.summary() == {"ap50": 0.7}


def test_an_unfinished_run_is_taken_up_only_when_asked(run: Run) -> None:
    before = content(run.path)
    with pytest.raises(OutputError, match="has an unfinished run; continue it with --resume"):
        create(run.path, SETTINGS, FACTS)
    with pytest.raises(OutputError, match="has an unfinished run; continue it with --resume"):
        ensure_open(run.path)
    ensure_open(run.path, resume=True)
    assert create(run.path, SETTINGS, FACTS, resume=True) == run
    assert content(run.path) == before


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_anything_else_is_refused(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(
        OutputError, match=r"not the folder of a run, and not empty \(thesis\.txt\)"
    ):
        create(tmp_path, SETTINGS, FACTS, resume=resume)
    with pytest.raises(OutputError, match="not the folder of a run, and not empty"):
        ensure_open(tmp_path, resume=resume)
    assert content(tmp_path) == {"thesis.txt": b"mine"}


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_is_refused(tmp_path: Path, resume: bool) -> None:
    path = tmp_path / "run"
    path.write_text("mine")
    with pytest.raises(OutputError, match="exists and is not a folder"):
        create(path, SETTINGS, FACTS, resume=resume)
    with pytest.raises(OutputError, match=r"could not be written \(Not a directory"):
        create(path / "below", SETTINGS, FACTS, resume=resume)
    assert path.read_text() == "mine"
    with pytest.raises(DataError, match="is not the folder of a run"):
        open_run(path)


def test_resuming_where_nothing_was_begun_begins(tmp_path: Path) -> None:
    ensure_open(tmp_path / "new", resume=True)
    assert not (tmp_path / "new").exists()
    run = create(tmp_path / "new", SETTINGS, FACTS, resume=True)
    assert run.settings() == SETTINGS


def test_a_run_killed_as_it_began_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".run.json.boxmend-partial").write_text(
        '{"boxm'
    )  # before the first file was whole
    run = create(tmp_path / "a", SETTINGS, FACTS, resume=True)
    assert sorted(content(run.path)) == ["run.json", "settings.json"]
    (run.path / "settings.json").replace(
        run.path / ".settings.json.boxmend-partial"
    )  # between the two
    assert create(run.path, SETTINGS, FACTS, resume=True).settings() == SETTINGS
    assert sorted(content(run.path)) == ["run.json", "settings.json"]


def test_a_setting_that_the_run_did_not_have_is_refused(run: Run) -> None:
    with pytest.raises(UsageError, match="other settings:\n  more: None, now 1"):
        create(run.path, {**SETTINGS, "more": 1}, FACTS, resume=True)


def test_other_settings_are_refused_by_their_dotted_names(run: Run) -> None:
    other: dict[str, Any] = {"method": "mend", "epochs": 6, "judgment": {"rate": 0.6, "length": 64}}
    with pytest.raises(UsageError, match="started with other settings") as caught:
        create(run.path, other, FACTS, resume=True)
    *listed, remedy = str(caught.value).splitlines()[1:]
    assert listed == ["  epochs: 12, now 6", "  judgment.length: 128, now 64"]
    assert "train into a new folder" in remedy
    assert run.settings() == SETTINGS


def test_settings_that_json_tells_alike_are_the_same(tmp_path: Path) -> None:
    create(tmp_path, {"size": (320, 480), "rate": np.float64(0.5), "out": Path("a")}, FACTS)
    again = {"size": [320, 480], "rate": 0.5, "out": "a"}
    assert create(tmp_path, again, FACTS, resume=True).settings() == again


def test_other_data_are_refused_and_other_hardware_is_noted(run: Run) -> None:
    with pytest.raises(DataError, match="the data differ from those that the run started with"):
        create(run.path, SETTINGS, {**FACTS, "data": []}, resume=True)
    elsewhere = {**FACTS, "versions": {"numpy": "2.1"}}
    for facts in (FACTS, elsewhere, elsewhere, FACTS):
        create(run.path, SETTINGS, facts, resume=True)
    document = json.loads((run.path / "run.json").read_text())
    assert document["facts"] == FACTS == run.facts()
    assert document["resumed_on"] == [elsewhere, FACTS]


def test_a_run_that_never_began_is_withdrawn_whole(run: Run) -> None:
    (run.path / "ledger").mkdir()
    (run.path / runs.LOCK_FILE).touch()
    runs.remove_unstarted(run)
    assert not run.path.exists()
    runs.remove_unstarted(run)  # which is no error where there is none


@pytest.mark.parametrize("name", ["metrics.jsonl", "ledger/part-0.parquet", "notes.txt"])
def test_a_run_with_anything_in_it_is_not_withdrawn(run: Run, name: str) -> None:
    (run.path / "ledger").mkdir()
    (run.path / name).write_text("something")
    before = content(run.path)
    runs.remove_unstarted(run)
    assert content(run.path) == before


def test_no_run_is_opened_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        open_run(tmp_path / "none")
    with pytest.raises(DataError, match=r"has no run\.json, so it is not the folder of a run"):
        open_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "cannot be read"),
        (b'{"boxmend_run": 1', "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[1]", "is not a JSON object"),
        (b"{}", "is not a run of format 1"),
        (b'{"boxmend_run": 2}', "is not a run of format 1"),
        (b'{"boxmend_run": 1, "resumed_on": []}', "has no facts"),
        (b'{"boxmend_run": 1, "facts": {}, "resumed_on": 3}', "has no facts"),
    ],
)
def test_an_unreadable_run_json_is_named_and_left_alone(
    run: Run, text: bytes, message: str
) -> None:
    (run.path / "run.json").write_bytes(text)
    for resume in (False, True):
        with pytest.raises(DataError, match=message) as caught:
            create(run.path, SETTINGS, FACTS, resume=resume)
        assert "run.json" in str(caught.value)
    with pytest.raises(DataError, match=message):
        open_run(run.path)
    assert (run.path / "run.json").read_bytes() == text


def test_unreadable_settings_are_named(run: Run) -> None:
    (run.path / "settings.json").write_text("{")
    with pytest.raises(DataError, match=r"settings\.json: cannot be read"):
        run.settings()
    with pytest.raises(DataError, match=r"settings\.json: cannot be read"):
        create(run.path, SETTINGS, FACTS, resume=True)
    (run.path / "settings.json").unlink()
    (run.path / "settings.json").mkdir()
    with pytest.raises(DataError, match=r"settings\.json: cannot be read \(a folder"):
        run.settings()


def test_an_unfinished_run_has_no_summary(run: Run) -> None:
    with pytest.raises(DataError, match="finished: cannot be read"):
        run.summary()
    run.finish()
    assert run.summary() == {}


def test_settings_and_facts_are_never_changed_for_the_sake_of_json(tmp_path: Path) -> None:
    for wrong, error in ((float("inf"), ValueError), ({1, 2}, TypeError)):
        with pytest.raises(error, match="JSON"):
            create(tmp_path / "run", {"limit": wrong}, FACTS)
        with pytest.raises(error, match="JSON"):
            create(tmp_path / "run", SETTINGS, {"limit": wrong})
        assert not (tmp_path / "run").exists()


def test_a_full_disk_is_an_output_error_and_leaves_no_half_file(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"finished: could not be written \(No space left"):
        run.finish()
    assert sorted(content(run.path)) == ["run.json", "settings.json"]


def test_the_room_needs_no_torch() -> None:
    code = "import sys, boxmend.runs.folder, boxmend.runs.ledger; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert runs.FORMAT_VERSION == 1


def test_documents_about_a_run_are_read_back_and_replaced(tmp_path: Path) -> None:
    run = create(tmp_path / "run", {}, {})
    assert run.read_json("evaluation.json") is None
    run.write_json("evaluation.json", {"AP": 0.5, "by_label": {"cat": float("nan")}})
    run.write_json("evaluation.json", {"AP": 0.25, "by_label": {"cat": float("nan")}})
    assert run.read_json("evaluation.json") == {"AP": 0.25, "by_label": {"cat": None}}
    (run.path / "mending.json").write_text("[]")
    with pytest.raises(DataError, match=r"mending\.json: is not a JSON object"):
        run.read_json("mending.json")


def test_the_lock_of_a_finished_run_goes_also_after_a_failure(tmp_path: Path) -> None:
    run = create(tmp_path / "run", SETTINGS, FACTS)
    run.finish()
    with pytest.raises(ValueError, match="mine"), sole_writer(run.path):
        raise ValueError("mine")
    assert not (run.path / ".lock").exists()
