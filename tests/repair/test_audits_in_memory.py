"""Audits in Python: the tables, the pictures, and the same files as the commands write."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import boxmend
from boxmend import ApplySettings, AuditSettings, BoxmendError
from boxmend.auditing.audit import audit_without_probe
from boxmend.auditing.completed import CompletedAudit
from boxmend.auditing.evidence import Detected
from boxmend.auditing.fixes.table import Kind
from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.data.images.drawing import GAP_PIXELS, GREEN, RED, WHITE
from boxmend.repair.audit_results import AuditResult
from tests.auditing.audit_scenes import SIZE, Noise, scene
from tests.fabricated_runs import Fix, audit_run, bytes_of, drawn, table_of

NOISE = Noise(labels=0.15, missing=0.05, spurious=0.04, duplicates=0.04)
NO_PROBE = AuditSettings(probe=0.0)


def arrays_of(detected: Detected, label_names: tuple[str, ...]) -> dict[str, Any]:
    """Detections as a user has them: names of files and of labels."""
    return {
        "image_ids": [f"{row:06}" for row in detected.image_rows.tolist()],  # in any format
        "boxes": detected.boxes,
        "labels": [label_names[label] for label in detected.labels.tolist()],
        "scores": detected.scores,
    }


@pytest.fixture(scope="module", params=["coco", "voc", "yolo"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The path of a noisy dataset, and detections in its images."""
    folder = tmp_path_factory.mktemp("world")
    one = scene(NOISE, images=80)
    Image.new("1", (SIZE, SIZE)).save(folder / "empty.png")
    one.dataset.images.paths[:] = [str(folder / "empty.png")] * len(one.dataset.images)
    one.dataset.save(folder / "data", format=request.param)
    path = folder / "data" / ("data.yaml" if request.param == "yolo" else "")
    return path, arrays_of(one.detected, one.dataset.label_names)


def test_the_lines_of_the_page_run_without_a_file_until_the_last(
    world: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, arrays = world
    monkeypatch.chdir(tmp_path)
    dataset = boxmend.load(path)
    predictions = boxmend.Predictions(**arrays)
    audit = boxmend.audit(dataset, predictions, NO_PROBE)
    assert len(audit.fixes) > 30
    assert audit.fixes[:5].to_arrow().num_rows == 5
    assert set(audit.fixes.filter(kind="missing")["old_label"].tolist()) == {None}
    assert len(audit.fixes.filter(kind="missing").to_pandas()) > 0
    rates = {row["kind"]: row for row in audit.rates}
    assert list(rates) == ["wrong label", "bad box", "missing", "spurious", "duplicate"]
    assert (
        rates["wrong label"]["low"] <= rates["wrong label"]["rate"] <= rates["wrong label"]["high"]
    )
    mended = audit.mended(precision=0.9)
    assert isinstance(mended, Dataset)
    assert len(mended.changes) > 10
    assert not list(tmp_path.iterdir())
    mended.save("mended")
    audit.save("audit")
    applied = boxmend.apply("audit", "applied", ApplySettings(precision=0.9))
    assert len(mended.changes) == applied.to_json()["fixes_taken"]
    written = bytes_of(tmp_path / "mended")
    assert written == bytes_of(tmp_path / "applied")
    assert {"changes.csv", "patch.json"} <= written.keys()
    boxmend.revert("mended")
    dataset.save("plain")
    assert bytes_of(tmp_path / "mended") == bytes_of(tmp_path / "plain")


def test_the_commands_write_the_same_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = scene(NOISE, images=60)
    one.dataset.save(tmp_path / "data", format="coco", images_as="none")
    entries = [f"{','.join(arrays_header())}"]
    arrays = arrays_of(one.detected, one.dataset.label_names)
    for image, label, score, box in zip(
        arrays["image_ids"], arrays["labels"], arrays["scores"], arrays["boxes"], strict=True
    ):
        entries.append(",".join(map(repr, [*map(float, box), float(score)])) + f",{label},{image}")
    path = tmp_path / "found.csv"
    path.write_text("\n".join(entries))
    audit = boxmend.audit(boxmend.load(tmp_path / "data"), path, NO_PROBE)
    audit.mended(precision=0.8, only="labels,missing").save(tmp_path / "mended")
    data = [str(tmp_path / "data"), "--predictions", str(path)]
    assert run(["audit", *data, "--out", str(tmp_path / "audit"), "--probe", "0"]) == 0
    applying = ["apply", str(tmp_path / "audit"), "--out", str(tmp_path / "applied")]
    assert run([*applying, "--precision", "0.8", "--only", "labels,missing"]) == 0
    assert bytes_of(tmp_path / "mended") == bytes_of(tmp_path / "applied")
    audit.save(tmp_path / "saved")
    names = ("fixes.parquet", "audit.json", "settings.json", "run.json")
    for name in names:
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "audit" / name).read_bytes()
    by_arrays = boxmend.audit(audit.dataset, boxmend.Predictions(**arrays), NO_PROBE)
    assert by_arrays.fixes.to_arrow().equals(audit.fixes.to_arrow())
    capsys.readouterr()


def arrays_header() -> tuple[str, ...]:
    return ("x1", "y1", "x2", "y2", "score", "label", "image")


FIXES = [
    Fix("l", Kind.WRONG_LABEL, 0, 1.0, label="truck", reason="seen as truck"),
    Fix("b", Kind.BAD_BOX, 0, 0.9, box=(12, 10, 30, 50), reason="tighter"),
    Fix("m", Kind.MISSING, p_fix=0.8, label="bus", box=(60, 60, 80.5, 90), reason="=unseen"),
    Fix("s", Kind.SPURIOUS, 1, 0.7, reason="nothing\udc80 there"),
    Fix("d", Kind.DUPLICATE, 2, 0.6, kept=3, reason="twice"),
]


def fabricated(address: str) -> AuditResult:
    """An audit in memory with these fixes."""
    dataset = boxmend.load(address)
    detected = Detected(dataset.image_rows, dataset.labels, np.ones(len(dataset)), dataset.boxes)
    result = replace(audit_without_probe(dataset, detected), fixes=table_of(dataset, FIXES))
    detections = boxmend.Predictions(["a.png"], [[1, 2, 3, 4]], ["van"], [0.5]).resolve(dataset)
    notes = ("a <b>note</b>", "a long note " * 30, "a third one")
    return AuditResult(CompletedAudit(dataset, detections, NO_PROBE, result, notes, ()))


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_all_kinds_of_fixes_are_written_as_by_apply(tmp_path: Path, format: str) -> None:
    address = drawn(tmp_path, format)
    stored = audit_run(tmp_path / "run", address, FIXES)
    mended = fabricated(address).mended(precision=0)
    mended.save(tmp_path / "mended")
    boxmend.apply(stored, tmp_path / "applied", ApplySettings(precision=0))
    assert bytes_of(tmp_path / "mended") == bytes_of(tmp_path / "applied")
    changes = {row["kind"]: row for row in mended.changes}
    assert list(changes) == ["wrong label", "bad box", "missing", "spurious", "duplicate"]
    assert (changes["wrong label"]["old_label"], changes["wrong label"]["new_label"]) == (
        *("van", "truck"),
    )
    assert (changes["missing"]["annotation_id"], changes["missing"]["old_x1"]) == (None, None)
    assert changes["missing"]["new_x2"] == 80.5
    assert (changes["spurious"]["new_label"], changes["spurious"]["new_x1"]) == (None, None)


def test_changes_after_the_repair_are_written_and_reverted(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    mended = fabricated(address).mended(precision=1.0)
    mended.labels[3] = 2
    mended.save(tmp_path / "out")
    again = boxmend.load(tmp_path / "out")
    assert [again.label_names[label] for label in again.labels] == ["truck", "truck", "bus", "bus"]
    boxmend.revert(tmp_path / "out")
    boxmend.load(address).save(tmp_path / "plain")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")


def test_a_part_of_a_mended_dataset_is_a_plain_dataset(tmp_path: Path) -> None:
    mended = fabricated(drawn(tmp_path, "coco")).mended(precision=1.0)
    for part in (mended.subset([0]), mended.take_images(np.array([0])), mended.take(np.array([0]))):
        assert type(part) is Dataset
        assert part.labels[0] == 1  # with its mended label


def test_a_picture_has_the_old_and_the_new_box(tmp_path: Path) -> None:
    audit = fabricated(drawn(tmp_path, "coco"))
    # The box (10, 10, 30, 50) gets a window of 100 pixels: the whole image, four times as large.
    picture = audit.show("b", side=400)
    left, right = (GAP_PIXELS, GAP_PIXELS), (2 * GAP_PIXELS + 400, GAP_PIXELS)
    assert picture.width == 3 * GAP_PIXELS + 800
    assert at(picture, left, 40, 100) == RED
    assert at(picture, right, 48, 100) == GREEN
    assert at(picture, right, 40, 100) == (0, 0, 0)
    assert at(picture, left, 200, 80) == WHITE  # from 40, 20: the left edge of the other one
    missing, spurious = audit.show(2, side=400), audit.show(-2, side=400)
    assert RED not in colours(missing, left)
    assert GREEN in colours(missing, right)
    assert RED in colours(spurious, left)
    assert GREEN not in colours(spurious, right)


def at(picture: Image.Image, corner: tuple[int, int], x: int, y: int) -> Any:
    """The colour at a place of a panel, of an image that is drawn in four times its size."""
    return picture.getpixel((corner[0] + x, corner[1] + y))


def colours(picture: Image.Image, corner: tuple[int, int]) -> set[Any]:
    half = picture.crop((*corner, corner[0] + 400, corner[1] + 400))
    return {colour for _, colour in half.getcolors(10**6) or []}


@pytest.mark.parametrize("fix", [5, -6, "x", None, 1.5, True])
def test_a_fix_that_does_not_exist_is_refused(tmp_path: Path, fix: Any) -> None:
    audit = fabricated(drawn(tmp_path, "coco"))
    with pytest.raises(BoxmendError, match="fix is "):
        audit.show(fix)


def test_an_image_that_is_not_there_cannot_be_shown(tmp_path: Path) -> None:
    audit = fabricated(drawn(tmp_path, "coco"))
    Path(audit.dataset.images.paths[0]).unlink()
    with pytest.raises(BoxmendError, match=r"a.png: cannot be shown, since there is no file"):
        audit.show(0)
    with pytest.raises(BoxmendError, match="precision is 95; expected a number from 0 to 1"):
        audit.mended(95)


def test_an_audit_is_described_in_ten_lines(tmp_path: Path) -> None:
    audit = fabricated(drawn(tmp_path, "coco"))
    lines = repr(audit).splitlines()
    assert lines[0] == "AuditResult: 4 annotations in 2 images"
    assert lines[3].endswith("1 proposed fixes")
    assert lines[6] == "  a <b>note</b>"
    assert lines[7].endswith("…")
    assert lines[8] == "  1 more in `notes`"
    assert len(lines) == 9
    assert "tighter" in audit._repr_html_()
    assert "a &lt;b&gt;note" in audit._repr_html_()
    mended = audit.mended(0)
    assert repr(mended).splitlines()[-1] == "  5 changes, expected precision 0.800"
    assert audit.to_json()["fixes"]["missing"]["listed"] == 1
    assert len(audit.notes) == 3


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ("folder", "folder: no such file or folder"),
        ([], "predictions is empty; expected boxmend.Predictions, or paths"),
        ([{"image_id": 1}], "predictions holds a dict; expected boxmend.Predictions"),
        ({"a": 1}, "predictions is a dict; expected boxmend.Predictions"),
        (None, "predictions is a NoneType; expected"),
    ],
)
def test_other_predictions_are_refused(tmp_path: Path, predictions: Any, message: str) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))
    with pytest.raises(BoxmendError, match=message):
        boxmend.audit(dataset, predictions)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("labels", 99, r"predictions.labels\[1\] is 99; .* below 3"),
        ("labels", -1, r"predictions.labels\[1\] is -1"),
        ("image_rows", 7, r"predictions.image_rows\[1\] is 7"),
        ("scores", np.nan, r"predictions.scores\[1\] is nan"),
        ("boxes", np.nan, r"predictions.boxes\[1\]"),
    ],
)
def test_rows_that_do_not_exist_are_refused(
    tmp_path: Path, column: str, value: float, message: str
) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))
    columns = {
        "image_rows": dataset.image_rows,
        "labels": dataset.labels,
        "scores": np.full(4, 0.5),
        "boxes": dataset.boxes,
    }
    columns[column] = columns[column].copy()
    columns[column][1] = value
    with pytest.raises(BoxmendError, match=message):
        boxmend.audit(dataset, Detected(**columns))


def test_settings_are_no_text(tmp_path: Path) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))
    with pytest.raises(BoxmendError, match="settings is a str; expected boxmend"):
        boxmend.audit(dataset, "found.json", "fast")  # type: ignore[arg-type]


def test_a_dataset_is_not_an_address() -> None:
    with pytest.raises(BoxmendError, match=r"dataset is a str; expected boxmend.load\(...\)"):
        boxmend.audit("data.yaml", "found.json")  # type: ignore[arg-type]


def test_an_audit_of_arrays_is_saved_and_applied_with_its_dataset(tmp_path: Path) -> None:
    one = scene(NOISE, images=60)
    names = [f"{row:06}.png" for row in one.dataset.image_rows]
    dataset = Dataset.from_arrays(
        names, one.dataset.boxes, one.dataset.labels, one.dataset.label_names
    )
    arrays = arrays_of(one.detected, dataset.label_names)
    known = np.isin(arrays["image_ids"], [name.removesuffix(".png") for name in names])
    predictions = boxmend.Predictions(**arrays)
    audit = boxmend.audit(dataset, predictions.take(known), NO_PROBE)
    audit.mended(0.9).save(tmp_path / "mended")
    audit.save(tmp_path / "audit")
    with pytest.raises(BoxmendError, match="which were in memory; name it by --data"):
        boxmend.apply(tmp_path / "audit", tmp_path / "out", ApplySettings(precision=0.9))
    boxmend.apply(tmp_path / "audit", tmp_path / "out", ApplySettings(precision=0.9), data=dataset)
    assert bytes_of(tmp_path / "mended") == bytes_of(tmp_path / "out")
