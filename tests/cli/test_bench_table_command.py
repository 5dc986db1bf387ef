"""`boxmend bench table`: finds results, refuses to mix, and writes files."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from boxmend.bench.grids.layouts import LAYOUTS
from boxmend.bench.grids.results import Data, Noise, Result, append_result
from boxmend.cli import run
from tests.cli.cli_answers import answer, in_a_process


def make_result(method: str, ap50: float, seed: int = 0, *, is_noisy: bool = True) -> Result:
    noise = Noise("symmetric:0.4", "uniform:0.4", seed) if is_noisy else Noise()
    return Result(
        cell=f"{'label40-box40' if is_noisy else 'label0-box0'}-{method}-{seed}",
        scale="smoke",
        noise=noise,
        method=method,
        seed=seed,
        settings={"epochs": 3, "detector": "tiny", "image_size": "96", "batch_size": 8},
        data=Data("a" * 64, ("b" if is_noisy else "a") * 64, "c" * 64),
        versions={"torch": "2.15.0"},
        hardware="a CPU",
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        scores={"voc_ap50_area": ap50, "voc_ap50_11point": ap50 / 2},
    )


RESULTS = (
    make_result("baseline", 0.9, is_noisy=False),
    make_result("baseline", 0.5),
    make_result("mend", 0.8),
)


def write(folder: Path, *results: Result, scale: str = "smoke") -> Path:
    path = folder / scale / "results.jsonl"
    for result in results:
        append_result(path, msgspec.structs.replace(result, scale=scale))
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the results of three cells, to run commands in."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "bench", *RESULTS)
    return tmp_path


def test_the_only_scale_with_results_is_the_default(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "table", "core"]) == 0
    shown = capsys.readouterr()
    assert "**80.0** (1)" in shown.out
    assert "75 (1)" in shown.out  # (0.8 - 0.5) / (0.9 - 0.5)
    assert "Scale smoke, 3 of 12 cells" in shown.out
    assert shown.err == ""


def test_several_scales_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "bench", *RESULTS, scale="voc320")
    assert run(["bench", "table", "core"]) == 2
    assert "give --scale smoke or voc320" in capsys.readouterr().err
    status, outcome = answer(capsys, "bench", "table", "core", "--scale", "voc320")
    assert (status, outcome["scale"]) == (0, "voc320")
    write(here / "bench", make_result("mend", 0.1, 1), scale="voc320")
    tokens = ["bench", "table", "core", "--scale", "smoke", "--results", "bench"]
    assert run(tokens) == 0  # of both scales in one place, those of one
    assert "**80.0** (1)" in capsys.readouterr().out


def test_files_and_folders_of_results_can_be_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(here / "elsewhere", make_result("mend", 0.6, 1), make_result("baseline", 0.4, 1))
    for place in (other, here / "elsewhere", other.parent):
        tokens = ["--results", here / "bench/smoke/results.jsonl", "--results", place]
        status, outcome = answer(capsys, "bench", "table", "core", *tokens)
        assert status == 0
        rows = {row["name"]: row for row in outcome["rows"]}
        assert rows["mend"]["entries"]["label40-box40"]["mean"] == pytest.approx(0.7)


def test_without_results_the_message_names_the_command_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["bench", "table", "table1"]) == 3
    assert "boxmend bench run table1 --scale smoke" in capsys.readouterr().err
    write(tmp_path / "bench", make_result("mend", 0.5))
    assert run(["bench", "table", "pair"]) == 3
    assert "boxmend bench run pair --scale smoke" in capsys.readouterr().err
    assert run(["bench", "table", "core", "--scale", "paper"]) == 3
    assert "boxmend bench run core --scale paper" in capsys.readouterr().err
    assert run(["bench", "table", "core", "--results", "no/such.jsonl"]) == 3
    assert "no/such.jsonl: cannot be read" in capsys.readouterr().err
    (tmp_path / "empty.jsonl").touch()
    assert run(["bench", "table", "core", "--results", "empty.jsonl"]) == 3
    assert "hold no results" in capsys.readouterr().err


def test_an_unknown_table_lists_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "table", "tabel1"]) == 2
    outcome = capsys.readouterr().err
    assert all(name in outcome for name in LAYOUTS)
    assert run(["bench", "table"]) == 0
    listed = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in listed] == list(LAYOUTS)


def test_results_of_other_versions_are_not_mixed_unless_asked(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = msgspec.structs.replace(make_result("mend", 0.7, 1), versions={"torch": "2.16.0"})
    write(here / "bench", newer)
    assert run(["bench", "table", "core"]) == 3
    outcome = capsys.readouterr()
    assert outcome.out == ""
    assert "versions.torch: 2.15.0 in" in outcome.err
    assert "2.16.0 in label40-box40-mend-1" in outcome.err
    assert "--mixed" in outcome.err
    assert run(["bench", "table", "core", "--where", "versions.torch=2.15.0"]) == 0
    assert "**80.0** (1)" in capsys.readouterr().out
    assert run(["bench", "table", "core", "--mixed"]) == 0
    assert r"mend \*" in capsys.readouterr().out


def test_an_older_try_can_be_chosen(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = msgspec.structs.replace(
        make_result("mend", 0.7), versions={"torch": "2.16.0"}, attempt=2
    )
    write(here / "bench", again)
    tokens = ["bench", "table", "core", "--where", "versions.torch=2.15.0"]
    assert run(tokens) == 0
    assert "**80.0** (1)" in capsys.readouterr().out


def test_files_are_written_by_their_ending(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outs = [f"core.{kind}" for kind in ("csv", "html", "json", "md", "svg")]
    tokens = ["bench", "table", "core", *(part for out in outs for part in ("--out", out))]
    assert run(tokens) == 0
    shown = capsys.readouterr()
    assert Path("core.md").read_text() == shown.out
    assert json.loads(Path("core.json").read_text())["table"] == "core"
    assert Path("core.csv").read_text().startswith("table,scale,row")
    assert Path("core.html").read_text().startswith("<!DOCTYPE html>")
    assert "recovered" in Path("core.svg").read_text()
    assert shown.err.splitlines() == [f"wrote {out}" for out in outs]


def test_nothing_is_overwritten_unasked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("core.csv").write_text("mine")
    tokens = ["bench", "table", "core", "--out", "new.html", "--out", "core.csv"]
    assert run(tokens) == 2
    assert "core.csv: the file exists" in capsys.readouterr().err
    assert Path("core.csv").read_text() == "mine"
    assert not Path("new.html").exists()
    assert run([*tokens, "--overwrite"]) == 0
    assert Path("core.csv").read_text() != "mine"


def test_an_unknown_ending_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "table", "core", "--out", "core.xlsx"]) == 2
    assert ".csv, .html, .json, .md, .svg" in capsys.readouterr().err


def test_a_metric_is_shown_as_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "table", "core", "--metric", "voc_ap50_11point"]) == 0
    assert "**40.0** (1)" in capsys.readouterr().out
    assert run(["bench", "table", "core", "--metric", "voc_ap51"]) == 2
    assert "there are voc_ap50_11point, voc_ap50_area" in capsys.readouterr().err


def test_an_incomplete_line_is_reported_on_stderr(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "bench/smoke/results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    status, outcome = answer(capsys, "bench", "table", "core")
    assert status == 0
    rows = {row["name"]: row for row in outcome["rows"]}
    assert rows["mend"]["entries"]["label40-box40"]["mean"] is None
    run(["bench", "table", "core"])
    assert "line 3 was cut off" in capsys.readouterr().err


def test_a_spoilt_line_is_an_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "bench/smoke/results.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes())
    assert run(["bench", "table", "core"]) == 3
    assert "line 1 is not a result" in capsys.readouterr().err


def test_tables_need_no_torch(here: Path) -> None:
    code = (
        "import sys; from boxmend.cli import run; status = run(['bench', 'table', 'core']);"
        "sys.exit(status or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"80.0" in done.stdout


def test_the_help_lists_the_table(here: Path) -> None:
    done = in_a_process(["bench", "--help"])
    assert done.returncode == 0
    assert "Show the results of" in done.stdout
