"""The tool that rewrites results of earlier versions."""

import json
import runpy
from pathlib import Path

import msgspec
import pytest

from boxmend.bench.grids.results import read_results
from boxmend.errors import DataError
from boxmend.runs.settings.renamed import RENAMED_SETTINGS
from tests import ROOT
from tests.bench.grid_results import result

migrate = runpy.run_path(str(ROOT / "tools" / "migrate_results.py"))["migrate"]


def write_old(path: Path) -> None:
    """Write two lines of format 1."""
    old = {"settings": {"method": "mend", "mend": {"uncut": True}}, "format": 1}
    line = msgspec.json.encode(msgspec.to_builtins(result()) | old) + b"\n"
    path.write_bytes(line + b"\n" + line)


def test_old_lines_get_present_names_and_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    write_old(path)
    before = read_results(path).results
    assert migrate(path) == 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["settings"]["mend"] for line in lines] == [{"extend_past_border": True}] * 2
    assert [line["format"] for line in lines] == [2, 2]
    assert all(line["digest"].startswith("sha256:") for line in lines)
    assert read_results(path).results == before


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    write_old(path)
    migrate(path)
    content = path.read_bytes()
    migrate(path)
    assert path.read_bytes() == content


def test_a_damaged_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    write_old(path)
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":7', 1))
    content = path.read_bytes()
    with pytest.raises(DataError, match="line 1"):
        migrate(path)
    assert path.read_bytes() == content


def test_the_published_results_have_present_names() -> None:
    lines = (ROOT / "results" / "voc320.jsonl").read_text().splitlines()
    settings = [json.loads(line)["settings"] for line in lines]
    for name in RENAMED_SETTINGS:
        section, _, key = name.rpartition(".")
        assert not [
            setting
            for setting in settings
            if key in (setting.get(section, {}) if section else setting)
        ]
