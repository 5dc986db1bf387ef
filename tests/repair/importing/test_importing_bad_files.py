"""Files that are no exports, or exports of another run, are refused and write nothing."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.repair.export import export
from boxmend.repair.importing.verdicts import import_verdicts
from tests.repair.export.exported_audits import audit_run, exported_audit, submitted
from tests.repair.export.exported_runs import Drawn, drawn_run

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE annotations [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    "<annotations><version>1.1</version><image name='a.png'>&b;</image></annotations>"
)


def message_of_import(
    run: Path, file: Path, words: str, export: Path | None = None, kind: Any = DataError
) -> None:
    with pytest.raises(kind, match=words):
        import_verdicts(run, file, export)
    assert not (run / "verdicts.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither JSON from Label Studio nor XML from CVAT"),
        (b"\xff\xfe\x00", "neither JSON"),
        (b"image,label\n", "neither JSON"),
        (b"[]", "no task that `boxmend export"),
        (b"{}", "export as JSON, not as JSON-MIN"),
        (b"[{", "is not a JSON export of Label Studio"),
        (b"[1]", "is not a JSON export"),
        (b'[{"id": 1, "image": "/a.png", "label": []}]', "not as JSON-MIN"),
        (b'[{"data": {"image": "/a.png"}, "annotations": []}]', "no task that `boxmend export"),
        (b'[{"data": {"boxmend": "all"}}]', "is not a JSON export"),
        (b'[{"data": {"boxmend": [{"region": 7}]}}]', "is not a JSON export"),
        (b'[{"data": {"boxmend": [{"region": "a", "fixes": [1]}]}}]', "is not a JSON export"),
        (b'[{"data": {"boxmend": [{"region": "a"}]}, "annotations": [7]}]', "is not a JSON export"),
        (b'[{"data": {"boxmend": [{"region": "a"}]}}]', "was not exported from"),
        (b"[" * 100_000, "is not a JSON export"),
        (b'[{"data": ' + b'{"a":' * 100_000, "is not a JSON export"),
        (b'[{"data": {"file_name": "\xff"}}]', "is not a JSON export"),
    ],
)
def test_a_file_that_is_no_export_is_reported(tmp_path: Path, content: bytes, words: str) -> None:
    run = audit_run(tmp_path)
    (tmp_path / "back").write_bytes(content)
    message_of_import(run, tmp_path / "back", words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<", "is not XML of CVAT"),
        (b"<annotation/>", "its outermost element is <annotation>"),
        (b"<annotations/>", "its version is None, expected '1.1'"),
        (b"<annotations><version>1.0</version></annotations>", "its version is '1.0'"),
        (b"<annotations><version>1.1</version><track/></annotations>", "it is a video task"),
        (b"<annotations><version>1.1</version></annotations>", "none of the exported images"),
        (b'<?xml version="1.0" encoding="martian"?><annotations/>', "is not XML of CVAT"),
        (b"<annotations>" + b"<a>" * 1000, "nests elements more than"),
        (LAUGHS.encode(), "declares a document type"),
        (
            b'<!DOCTYPE annotations SYSTEM "file:///etc/passwd"><annotations/>',
            "declares a document type",
        ),
        (
            b'<annotations><version>1.1</version><image name="a.png"><box label="van" xtl="1" '
            b'ytl="1" xbr="2" ybr="2"/></image></annotations>',
            "no box has the attribute `region`",
        ),
    ],
)
def test_xml_that_is_no_export_is_reported(tmp_path: Path, content: bytes, words: str) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    (tmp_path / "back.xml").write_bytes(content)
    message_of_import(run, tmp_path / "back.xml", words, out)


def test_odd_numbers_in_boxes_say_nothing(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    text = (out / "annotations.xml").read_text()
    for k, odd in enumerate(("nan", "-inf", "1e300", "", "many", "150")):  # 150: no area
        path = tmp_path / f"{k}.xml"
        path.write_text(text.replace('xtl="100" ytl="20"', f'xtl="{odd}" ytl="20"'))
        imported = import_verdicts(run, path, out)
        assert imported.num_unreadable == 1, odd
        assert "box 11" not in [verdict.fix for verdict in imported.verdicts]


@pytest.mark.parametrize(
    "change",
    [
        {"value": {}},
        {"value": {"x": "1", "y": 1, "width": 1, "height": 1, "rectanglelabels": ["van"]}},
        {"value": {"x": 1, "y": 1, "width": 1e300, "height": 1, "rectanglelabels": ["van"]}},
        {"value": {"x": 1, "y": 1, "width": 5, "height": 5, "rectanglelabels": ["van", "bus"]}},
        {"value": {"x": 1, "y": 1, "width": 5, "height": 5, "rectanglelabels": [["van"]]}},
        {"value": {"x": 1, "y": 1, "width": 5, "height": 5, "rectanglelabels": "van"}},
        {"value": {"x": 10**400, "y": 1, "width": 5, "height": 5, "rectanglelabels": ["van"]}},
        {"value": {"x": -40, "y": 1, "width": 5, "height": 5, "rectanglelabels": ["van"]}},
        {"value": {"x": 10, "y": 100, "width": 5, "height": 5, "rectanglelabels": ["van"]}},
        {"original_width": None},
    ],
)
def test_odd_regions_say_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    run, out = exported_audit(tmp_path, "label-studio")

    def edit(_: str, regions: dict[str, Any]) -> None:
        if "annotation-1" in regions:
            regions["annotation-1"] |= change

    imported = import_verdicts(run, submitted(out, tmp_path / "back.json", edit))
    assert imported.num_unreadable == 1
    assert "box 11" not in [verdict.fix for verdict in imported.verdicts]


def test_turned_boxes_say_nothing(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "label-studio")

    def turn(_: str, regions: dict[str, Any]) -> None:
        for region in regions.values():
            region["value"]["rotation"] = 15

    assert import_verdicts(run, submitted(out, tmp_path / "back.json", turn)).verdicts == ()
    other = audit_run(tmp_path / "other")
    out = export(other, tmp_path / "cvat", "cvat", most=99).out
    text = (out / "annotations.xml").read_text().replace("occluded=", 'rotation="15.0" occluded=')
    (tmp_path / "back.xml").write_text(text)
    imported = import_verdicts(other, tmp_path / "back.xml", out)
    assert (imported.verdicts, imported.num_unreadable) == ((), 6)


def test_a_zip_file_is_read_or_reported(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("images/a.png", b"")
    message_of_import(run, tmp_path / "empty.zip", "does not contain annotations.xml", out)
    with zipfile.ZipFile(tmp_path / "full.zip", "w") as archive:
        archive.writestr("annotations.xml", (out / "annotations.xml").read_bytes())
    whole = (tmp_path / "full.zip").read_bytes()
    (tmp_path / "torn.zip").write_bytes(whole[: len(whole) // 2])
    message_of_import(run, tmp_path / "torn.zip", "cannot be read as a zip file", out)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_file_whose_content_is_spoilt_is_reported(tmp_path: Path, method: int) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    path = tmp_path / "spoilt.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("annotations.xml", (out / "annotations.xml").read_bytes())
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(one ^ 0x5A for one in data[60:90])
    path.write_bytes(data)
    message_of_import(run, path, "cannot be read as a zip file", out)


def test_files_of_another_dataset_are_reported(tmp_path: Path) -> None:
    run = audit_run(tmp_path / "one")
    drawn = Drawn()
    drawn.boxes[0] = [21, 10, 60, 40]
    _, out = exported_audit(tmp_path / "two", "label-studio", drawn)
    words = "was not exported from .*name the run"
    message_of_import(run, submitted(out, tmp_path / "back.json"), words)
    _, out = exported_audit(tmp_path / "three", "cvat", drawn)
    message_of_import(run, out / "annotations.xml", words)


def test_an_export_to_another_tool_is_reported(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    other = export(run, tmp_path / "studio", "label-studio").out
    message_of_import(
        run, out / "annotations.xml", "an export to label-studio, but .* is from cvat", other
    )


def test_a_missing_or_invalid_manifest_is_reported(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    back = tmp_path / "back.xml"
    back.write_bytes((out / "annotations.xml").read_bytes())
    message_of_import(run, back, "by --export", kind=UsageError)
    message_of_import(run, back, "no such file", tmp_path / "nowhere", kind=UsageError)
    for content, words in (
        ("", "is not the export.json"),
        ("[]", "is not the export.json"),
        ('{"boxmend_export": 1, "to": "cvat", "data_sha256": null}', "is not the export.json"),
        (
            '{"boxmend_export": 3, "to": "cvat", "data_sha256": null, "images": []}',
            "does not have format 2; export again",
        ),
        (
            '{"boxmend_export": 2, "to": "cvat", "data_sha256": null, "images": []}',
            "before the run was audited; export again",
        ),
    ):
        (tmp_path / "m.json").write_text(content)
        message_of_import(run, back, words, tmp_path / "m.json")


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    run = audit_run(tmp_path)
    message_of_import(run, tmp_path / "nowhere.json", "no such file", kind=UsageError)
    message_of_import(run, tmp_path, "is a folder", kind=UsageError)


def test_a_run_without_an_audit_is_reported(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    (tmp_path / "back.json").write_text("[]")
    message_of_import(run, tmp_path / "back.json", "`boxmend audit", kind=UsageError)


def test_a_huge_file_is_reported_before_it_is_read(tmp_path: Path) -> None:
    run = audit_run(tmp_path)
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate((1 << 30) + 1)  # takes no room
    message_of_import(run, tmp_path / "huge.json", "more than the limit of 1,073,741,824")


def test_whatever_is_torn_from_an_export_is_reported(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "label-studio")
    whole = submitted(out, tmp_path / "back.json").read_bytes()
    for end in range(1, len(whole), 997):
        (tmp_path / "torn.json").write_bytes(whole[:end])
        message_of_import(run, tmp_path / "torn.json", "is not a JSON export", kind=BoxmendError)
    assert json.loads(whole)


def test_a_zip_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    head, image, end = "<annotations><version>1.1</version>", "<image/>", "</annotations>"
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", head + image * 100_000 + end)
    monkeypatch.setenv("BOXMEND_MAX_EXPORT_BYTES", "100KiB")
    words = r"bomb\.zip: annotations\.xml in it: 800,0.. bytes .*BOXMEND_MAX_EXPORT_BYTES"
    message_of_import(run, tmp_path / "bomb.zip", words, out)
    monkeypatch.delenv("BOXMEND_MAX_EXPORT_BYTES")
    monkeypatch.setenv("BOXMEND_MAX_EXPORT_ELEMENTS", "50000")
    words = r"bomb\.zip: 50,001 elements .*BOXMEND_MAX_EXPORT_ELEMENTS"
    message_of_import(run, tmp_path / "bomb.zip", words, out)
    monkeypatch.delenv("BOXMEND_MAX_EXPORT_ELEMENTS")
    message_of_import(run, tmp_path / "bomb.zip", "has none of the exported images", out)


def test_a_json_export_of_too_many_values_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = audit_run(tmp_path)
    (tmp_path / "back.json").write_bytes(b"[" + b"{}," * 400_000 + b"{}]")
    monkeypatch.setenv("BOXMEND_MAX_RECORD_VALUES", "100000")
    message_of_import(
        run, tmp_path / "back.json", r"back\.json: 800,002 values .*MAX_RECORD_VALUES"
    )
