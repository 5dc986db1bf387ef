"""The page as a file: its policy, what is escaped, and what is never overwritten."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boxmend
from boxmend.data.files.locks import try_lock
from boxmend.data.noise.truth import Truth, write_truth
from boxmend.data.types import Box
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.runs.folder import open_run
from boxmend.web.report import writing
from boxmend.web.report.figures import FIGURES
from boxmend.web.report.gallery import columns
from boxmend.web.report.gathering import ReportSettings, gather, scores_of
from boxmend.web.report.page import SCRIPTS
from boxmend.web.report.summary import short_address
from boxmend.web.report.writing import write_report
from boxmend.web.text import MAX_CHARACTERS, display_text, script_json
from tests.fabricated_runs import BOXES, DISCARDED, NAMES, RELABELLED
from tests.web.report.drawn_records import seen, telling_visits
from tests.web.report.drawn_runs import drawn_run
from tests.web.report.read_pages import Parts, parts_of

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\"'`&amp;{{ 7 * 7 }}",
)
NOISE = {"label_noise": 0.25, "label_noise_low": 0.125, "label_noise_high": 0.5, "box_noise": 0.4}


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return drawn_run(tmp_path, telling_visits(), summary={"noise": NOISE})


def test_of_two_reports_at_once_one_gets_a_clear_message(run: Path) -> None:
    page = write_report(run).path
    before = page.read_bytes()
    with (
        try_lock(run / "report-images"),
        pytest.raises(OutputError, match=r"report\.html: another process is writing this report"),
    ):
        write_report(run)
    assert page.read_bytes() == before
    (run / "report-images" / ".left.jpg.boxmend-partial").write_bytes(b"half")  # of a killed one
    write_report(run)
    assert not list(run.rglob(".*"))


def test_the_policy_names_the_hashes_of_the_very_texts_on_the_page(run: Path) -> None:
    parts = parts_of(write_report(run).path)
    data, *scripts = parts.texts["script"]
    assert json.loads(data)["labels"] == ["van", "truck", "bus"]
    assert len(scripts) == len(SCRIPTS)
    assert parts.policy == {
        "default-src": ["'none'"],
        "script-src": [digest(script) for script in scripts],
        "style-src": [digest(one) for one in parts.texts["style"]],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }


def test_nothing_on_the_page_needs_what_the_policy_forbids(run: Path) -> None:
    parts = parts_of(write_report(run).path)
    for tag, attributes in parts.tags:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "action", "data"):
            address = attributes.get(name) or ""
            assert re.match(r"[a-z]+:", address) is None or address.startswith("data:image/"), tag
    assert "innerHTML" not in "".join(parts.texts["script"])


def test_the_policy_admits_neighbours_only_where_pictures_lie_beside(run: Path) -> None:
    made = write_report(run, settings=ReportSettings(embed=False))
    parts = parts_of(made.path)
    assert parts.policy["img-src"] == ["data:", "'self'", "file:"]
    assert parts.data["folder"] == "report-images"
    assert not made.is_embedded
    names = parts.data["pictures"]
    assert len(names) == 3
    assert all((run / "report-images" / name).is_file() for name in names)


def test_pictures_are_in_the_page_while_they_are_few(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_report(run)
    parts = parts_of(made.path)
    assert made.is_embedded
    assert parts.data["folder"] is None
    files = sorted(one.read_bytes() for one in (run / "report-images").glob("*.jpg"))
    embedded = [*parts.data["pictures"], *parts.data["whole"]]
    assert sorted(base64.b64decode(one) for one in embedded) == files
    size = sum(map(len, files))
    monkeypatch.setattr(writing, "MAX_EMBEDDED_CHARACTERS", size * 4 // 3)
    assert write_report(run).is_embedded
    monkeypatch.setattr(writing, "MAX_EMBEDDED_CHARACTERS", size * 4 // 3 - 1)
    assert not write_report(run).is_embedded
    assert write_report(run, settings=ReportSettings(embed=True)).is_embedded


def test_an_evaluation_goes_before_the_validation_of_the_training(run: Path) -> None:
    result = open_run(run).summary() | {"val": {"voc_ap50_area": 0.5}, "val_by_label": {"van": 0.5}}
    (run / "finished").write_text(json.dumps(result))
    assert scores_of(open_run(run)).ap50 == 0.5
    assert scores_of(open_run(run)).by_label == {"van": 0.5}
    by_label = {"van": {"AP50": 0.1, "voc_ap50_area": 0.75}, "bus": {"voc_ap50_area": None}}
    (run / "evaluation.json").write_text(json.dumps({"voc_ap50_area": 0.7, "by_label": by_label}))
    assert scores_of(open_run(run)).ap50 == 0.7
    assert scores_of(open_run(run)).by_label == {"van": 0.75}
    for hostile in ('{"voc_ap50_area": "<b>", "by_label": [1]}', '{"voc_ap50_area": 1e999}'):
        (run / "evaluation.json").write_text(hostile)
        assert scores_of(open_run(run)).by_label in ({}, {"van": 0.5})
        assert scores_of(open_run(run)).ap50 in (None, 0.5)
    for broken, why in (("{", "cannot be read"), ("[]", "is not a JSON object")):
        (run / "evaluation.json").write_text(broken)
        with pytest.raises(DataError, match=rf"evaluation\.json: {why}"):
            scores_of(open_run(run))


@pytest.mark.parametrize("val", [[0.5], "0.5", {"voc_ap50_area": [0.5]}, None, True])
def test_scores_of_another_shape_are_left_out(tmp_path: Path, val: Any) -> None:
    run = drawn_run(tmp_path, telling_visits(), summary={"val": val, "val_by_label": [val]})
    assert scores_of(open_run(run)).ap50 is None
    assert scores_of(open_run(run)).by_label == {}


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    files = ["<b>.png", "a\u202egnp.png"]
    run = drawn_run(tmp_path, telling_visits(), names=HOSTILE, files=files)
    page = write_report(run).path.read_text(encoding="utf-8")
    parts = Parts(page)
    assert "alert(1)>" not in page.replace("&gt;", "")  # only ever escaped
    assert [tag for tag, _ in parts.tags].count("script") == 1 + len(SCRIPTS)
    assert "img" not in {tag for tag, _ in parts.tags}
    assert parts.data["labels"] == list(HOSTILE)
    assert parts.data["files"] == ["<b>.png", "a\ufffdgnp.png"]
    assert any(HOSTILE[1] in text for text in parts.texts[""])  # in the table of changes


def test_names_beyond_all_measure_become_a_page_all_the_same(tmp_path: Path) -> None:
    names = ("x" * 10_000, "nul\x00\u202e", "tab\t")
    run = drawn_run(tmp_path, telling_visits(), names=names, summary={"noise": NOISE})
    made = write_report(run)
    parts = parts_of(made.path)
    assert parts.data["labels"] == ["x" * 199 + "\u2026", "nul\ufffd\ufffd", "tab\ufffd"]
    assert made.num_bytes < 300_000
    assert "\x00" not in made.path.read_text(encoding="utf-8")


def test_names_that_no_document_may_hold_are_made_fit() -> None:
    assert display_text("a\x00b\ud800c\u2028d\u202ee\nf") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf"
    assert display_text("x" * 10_000) == "x" * (MAX_CHARACTERS - 1) + "\u2026"
    assert display_text("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert display_text("\u05d0\u0627 \u6c49 \U0001f600") == "\u05d0\u0627 \u6c49 \U0001f600"


@given(st.text(alphabet=st.characters(), max_size=30))
def test_json_in_a_script_round_trips_and_cannot_end_the_script(text: str) -> None:
    written = script_json({"name": text, "</script>": [text]})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"name": text, "</script>": [text]}
    display_text(text).encode("utf-8")


def test_json_holds_no_number_that_is_none() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        script_json([float("nan")])


def test_a_report_is_made_anew_and_its_pictures_are_not(run: Path) -> None:
    write_report(run)
    before = {path: path.stat().st_mtime_ns for path in (run / "report-images").iterdir()}
    first = (run / "report.html").read_bytes()
    write_report(run)
    assert (run / "report.html").read_bytes() == first
    assert {path: path.stat().st_mtime_ns for path in (run / "report-images").iterdir()} == before


def test_pictures_of_the_former_page_go_only_when_the_new_one_is_there(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(run)
    folder = run / "report-images"
    former = {path.name for path in folder.glob("*.jpg")}
    monkeypatch.setattr(writing, "WHOLE_SIDE", 40)

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(writing, "render", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_report(run)
    assert former <= {path.name for path in folder.glob("*.jpg")}
    write_report(run)
    assert not former <= {path.name for path in folder.glob("*.jpg")}


def test_pictures_that_another_report_removed_are_reported(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_away(*given: Any) -> dict[str, Any]:
        table = columns(*given)
        for path in (run / "report-images").glob("*.jpg"):
            path.unlink()
        return table

    monkeypatch.setattr(writing, "columns", taken_away)
    with pytest.raises(OutputError, match="another process writes a report of this run"):
        write_report(run)


def test_a_page_that_no_report_made_is_protected(run: Path) -> None:
    (run / "report.html").write_text("<html>my own notes</html>")
    with pytest.raises(OutputError, match="`boxmend report` did not write it"):
        write_report(run)
    assert (run / "report.html").read_text() == "<html>my own notes</html>"
    assert not (run / "figures").exists()


@pytest.mark.parametrize("name", ["figures", "report-images"])
def test_a_folder_that_no_report_made_is_protected(run: Path, name: str) -> None:
    (run / name).mkdir()
    (run / name / "losses.svg").write_text("mine")
    with pytest.raises(OutputError, match=f"{name}: the folder holds 'losses.svg'"):
        write_report(run)
    assert (run / name / "losses.svg").read_text() == "mine"
    assert not (run / "report.html").exists()


def test_a_report_elsewhere_has_folders_of_its_own_name(run: Path, tmp_path: Path) -> None:
    made = write_report(run, tmp_path / "new" / "autumn.html", ReportSettings(embed=False))
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == [
        "autumn-figures",
        "autumn-images",
        "autumn.html",
    ]
    assert parts_of(made.path).data["folder"] == "autumn-images"
    hrefs = [a.get("href") or "" for tag, a in parts_of(made.path).tags if tag == "a"]
    files = [href for href in hrefs if href.endswith(".csv")]
    assert files
    assert all((tmp_path / "new" / file).is_file() for file in files)
    assert not (run / "report.html").exists()


def test_figures_that_do_not_apply_any_more_are_removed(run: Path) -> None:
    write_report(run)
    names = {path.name for path in (run / "figures").iterdir()}
    stale = {"ap.svg", "ap.csv"} | {f"{name}.svg" for name in FIGURES} - names
    (run / "figures" / "mine.svg").write_text("kept")
    for name in stale:
        (run / "figures" / name).write_text("stale")
    write_report(run)
    after = {path.name for path in (run / "figures").iterdir()}
    assert after - {"ap.svg", "ap.csv"} == names | {"mine.svg"}


def test_a_report_is_a_page(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"choose a name like report\.html"):
        write_report(run, tmp_path / "report.pdf")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OutputError, match="cannot be read"):
        write_report(run, tmp_path / "folder.html")


def test_images_that_are_gone_leave_a_page_without_their_pictures(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, [seen(0, 1, RELABELLED, 2), seen(0, 3, DISCARDED)])
    for path in (tmp_path / "data").rglob("0.png"):
        path.unlink()
    made = write_report(run)
    assert (made.num_shown, made.num_without_picture) == (2, 1)
    data = parts_of(made.path).data
    assert data["pictures"][0] is None
    assert data["problems"][data["problem"][0]] == "no such file"


def test_no_folder_of_the_machine_is_on_the_page(run: Path, tmp_path: Path) -> None:
    page = write_report(run, settings=ReportSettings(embed=False)).path.read_text()
    assert str(tmp_path) not in page
    assert str(tmp_path.parent) not in page
    assert f"{tmp_path.name}/data" in page
    assert short_address("/home/me/photos/voc:train") == "photos/voc:train"
    assert short_address("voc") == "voc"
    assert short_address("/voc") == "voc"


def test_further_runs_on_the_same_data_share_them_and_their_truth(
    run: Path, tmp_path: Path
) -> None:
    other = drawn_run(tmp_path / "other", telling_visits(4))
    shutil.rmtree(tmp_path / "other" / "data")  # alike, by their fingerprint: not needed
    settings = ReportSettings(truth=str(tmp_path / "data"), beside=[other, run])
    record = gather(run, settings)
    assert [one.opened.history.num_epochs for one in record.beside] == [4, 3]
    assert all(one.truth is not None for one in record.beside)
    assert gather(run, ReportSettings(beside=[other])).beside[0].truth is None


def test_further_runs_on_other_data_bring_the_truth_that_lies_beside(
    run: Path, tmp_path: Path
) -> None:
    moved: list[Box] = [(x1 + 1, y1, x2, y2) for x1, y1, x2, y2 in BOXES]
    other = drawn_run(tmp_path / "other", telling_visits(), boxes=moved)
    settings = ReportSettings(truth=str(tmp_path / "data"), beside=[other])
    assert gather(run, settings).beside[0].truth is None
    result = Truth(
        label_names=NAMES,
        annotation_ids=np.arange(10, 14),
        source_ids=np.arange(10, 14),
        labels=np.array([0, 1, 2, 1]),
        boxes=np.array(BOXES, np.float64),
        label_changed=np.array([False, False, False, True]),
        box_changed=np.ones(4, np.bool_),
        origins=np.zeros(4, np.int8),
    )
    write_truth(result, tmp_path / "other" / "data" / "truth.parquet")
    truth = gather(run, settings).beside[0].truth
    assert truth is not None
    assert truth.labels.tolist() == [0, 1, 2, 1]
    assert gather(run, ReportSettings(beside=[other])).beside[0].truth is None


def test_the_library_offers_it(run: Path) -> None:
    assert boxmend.write_report is write_report
    assert boxmend.ReportSettings is ReportSettings
