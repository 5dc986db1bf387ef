"""The page about handing over, and the script that it names."""

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import boxmend
from boxmend.repair.export import TARGETS, coco, cvat, fiftyone, label_studio
from tests import ROOT
from tests.repair.export.exported_runs import drawn_run, exported, json_of

PAGE = (ROOT / "docs/export.md").read_text("utf-8")


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = PAGE[PAGE.index("## From Python") :].split("```")[1].removeprefix("python\n")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["exported"].to_json()["suspects"] == 4
    assert (tmp_path / "for-fiftyone/samples.json").is_file()
    assert (tmp_path / "to-check/annotations.xml").is_file()
    assert boxmend.export is names["boxmend"].export


def test_the_page_names_every_file_and_attribute(tmp_path: Path) -> None:
    names = set(re.findall(r"`([\w./-]+)`", PAGE))
    for to in TARGETS:
        out = exported(tmp_path / to, to)
        assert {path.name for path in out.iterdir()} <= names
        assert to in names
    assert {cvat.STATUS, *cvat.TEXTS, fiftyone.ANNOTATED, fiftyone.MENDED} <= names
    assert f"{cvat.MAX_NAME_CHARACTERS} characters" in PAGE
    assert label_studio.LOCAL_FILES in PAGE
    assert coco.ANNOTATIONS_FILE in names


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("check_export", ROOT / "tools/check_export.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_knows_every_target(script: ModuleType) -> None:
    assert list(script.CHECKS) == list(TARGETS)


def test_the_script_passes_what_is_right(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pycocotools")
    out = exported(tmp_path, "coco")
    assert script.main([str(out)]) == 0
    assert re.search(
        r"^PASS .* \(coco\): pycocotools .*2 images with 6", capsys.readouterr().out, re.M
    )


def test_the_script_fails_what_is_wrong(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pycocotools")
    path = exported(tmp_path, "coco") / coco.ANNOTATIONS_FILE
    document = json_of(path)
    document["annotations"][0]["bbox"][0] += 1
    path.write_text(json.dumps(document))
    assert script.main([str(path.parent)]) == 1
    assert "FAIL" in capsys.readouterr().out
