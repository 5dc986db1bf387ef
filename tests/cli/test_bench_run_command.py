"""`boxmend bench run` and `boxmend bench cells`, on the command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boxmend.bench.grids import scales
from boxmend.bench.grids.running import GridProgress, RunningCell
from boxmend.cli import run
from boxmend.cli.bench_progress import clock, panel, progress, summary

SMOKE = ["--scale", "smoke"]
FULL = GridProgress(
    total=9,
    done=4,
    failed=1,
    stopped=0,
    running=[RunningCell("label40-box40-mend-0", 75.0, 2, 12, 301.4), RunningCell("b-0", 3.0)],
    elsewhere=["label40-box40-br-0"],
    left=1,
    seconds_left=3723.4,
)


def list_table_cells(capsys: pytest.CaptureFixture[str], *tokens: str) -> list[dict[str, Any]]:
    assert run(["bench", *tokens, "--json"]) == 0
    answer: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answer


def test_a_dry_run_lists_the_cells_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "bench")]
    rows = list_table_cells(capsys, "run", "table1", *SMOKE, "--dry-run", "--seeds", "0,2", *out)
    assert len(rows) == 2 * 9
    assert rows[0] == {
        "cell": "label40-box40-mend-0",
        "priority": 1,
        "state": "open",
        "tries": 0,
        "seconds": 0,
        "from": None,
    }
    assert not (tmp_path / "bench").exists()
    assert list_table_cells(capsys, "cells", "table1", *SMOKE, "--seeds", "0,2", *out) == rows


def test_cells_are_listed_for_people_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["bench", "cells", "table1", *SMOKE, "--out", str(tmp_path), "--methods", "br,mend"]
    assert run(tokens) == 0
    printed = capsys.readouterr()
    head = ["cell", "priority", "state", "tries", "seconds", "from"]
    assert printed.out.splitlines()[0].split() == head
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == [
        "label40-box40-mend-0",
        "label40-box40-br-0",
    ]
    assert "2 cells under" in printed.err


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["tabel1", *SMOKE], "there is no table 'tabel1'; there are table1, coco, core"),
        (["table1", "--scale", "large"], "no scale 'large'; there are paper, voc320, smoke"),
        (["table1", *SMOKE, "--methods", "mand"], "no method 'mand' here; there are baseline"),
        (["table1", *SMOKE, "--only", "x*"], "--only x*: no cell has such a name; there are"),
        (
            ["table1", *SMOKE, "--seeds", "one"],
            "--seeds is 'one'; expected numbers separated by commas",
        ),
        (["table1", *SMOKE, "--seeds", ","], "--seeds needs numbers from 0 on"),
        (["table1", *SMOKE, "--seeds", "9" * 5000], "expected numbers separated by commas"),
        (["table1", "--scale", "voc320"], "needs clean data to train on: give --data"),
        (["table1", *SMOKE, "--data", "x"], "draws its data: leave out --data and --val"),
        (["table1", *SMOKE, "--set", "epochs"], "--set epochs: expected KEY=VALUE"),
        (["table1", *SMOKE, "--set", "epoks=3"], "there is no setting epoks"),
        (["table1", *SMOKE, "--set", "method=br"], "each cell of a table has its own; --methods"),
        (["table1", *SMOKE, "--set", "seed=3"], "each cell of a table has its own; give --seeds"),
        (["table1", *SMOKE, "--set", "label_noise=0.1"], "tables `auto` and `sensitivity-rate`"),
        (["table1", *SMOKE, "--set", "weights=w.pt"], "use --weights w.pt"),
        (["table1", *SMOKE, "--gpus", "0,x"], "--gpus x: expected numbers of GPUs, like 0,1"),
        (["table1", *SMOKE, "--jobs", "0"], "--jobs is 0; expected 1 or more"),
        (["table1", *SMOKE, "--stop-after", "0"], "--stop-after is 0.0; expected seconds"),
        (["table1", *SMOKE, "--stop-after", "nan"], "--stop-after is nan; expected seconds"),
        (["table1", *SMOKE, "--priority", "may"], "--priority 'may': expected 1, 2 or 3"),
        (["table1", "corr", *SMOKE], "there is no table 'corr'; there are table1, coco, core"),
        (SMOKE, "name a table to run: table1, coco, core"),
        (["table1", *SMOKE, "--slurm.partition", "x"], "--slurm is for SLURM; add --executor"),
        (["table1", *SMOKE, "--executor", "submitit", "--gpus", "0"], "--gpus is for this machine"),
    ],
)
def test_wrong_usage_is_explained(
    tokens: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "run", *tokens, "--out", str(tmp_path / "bench")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "bench" / "smoke" / "cells").exists()


def test_missing_data_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ["table1", "--scale", "voc320", "--data", "nowhere:train", "--val", "nowhere:val"]
    assert run(["bench", "run", *tokens, "--out", str(tmp_path)]) == 2
    assert "nowhere:train: no such file or folder" in capsys.readouterr().err


def test_weights_may_be_none_as_in_a_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["run", "table1", *SMOKE, "--dry-run", "--only", "*-mend-0", "--weights", "none"]
    assert len(list_table_cells(capsys, *tokens, "--out", str(tmp_path))) == 1


def test_a_file_in_the_place_of_the_folder_of_results_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "deep"):
        assert run(["bench", "run", "table1", *SMOKE, "--out", str(out)]) == 2
        assert "file is not a folder; name another folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_an_unknown_time_left_is_omitted() -> None:
    assert "to go" not in summary(replace(FULL, seconds_left=None))
    assert "to go" not in summary(replace(FULL, seconds_left=0.3))


def test_the_summary_says_that_cells_save_before_they_stop() -> None:
    stopping = replace(FULL, seconds_left=None, is_stopping=True)
    assert summary(stopping).endswith("saving checkpoints (Ctrl-C again kills the cells)")
    assert "saving" not in summary(replace(stopping, running=[]))


def test_the_summary_says_that_no_more_cells_start() -> None:
    closing = replace(FULL, is_closing=True)
    assert summary(closing).endswith("starting no more cells because of --stop-after")
    assert "--stop-after" not in summary(FULL)


def test_summary_and_progress_of_cells() -> None:
    assert summary(FULL) == (
        "4 of 9 done, 1 failed, 2 running, 1 running elsewhere, 1 left, about 1:02:03 to go"
    )
    assert progress(FULL.running[0]) == "epoch 2 of 12, 301 images/s, 1:15"
    assert progress(FULL.running[1]) == "starting, 0:03"
    assert clock(59.6) == "1:00"


def test_the_panel_shows_every_cell_that_runs() -> None:
    from rich.console import Console

    console = Console(width=120, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(panel(FULL))
    for text in ("4 of 9 done", "label40-box40-mend-0", "epoch 2 of 12", "run by another process"):
        assert text in captured.get()


def test_help_lists_tables_and_scales(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "run", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("table1, coco, core", "smoke: drawn toys", "--slurm", "runs it once"):
        assert text in printed
    assert run(["bench", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "List the cells of a table" in printed


@pytest.mark.slow
def test_the_whole_of_table_1_runs_on_a_cpu_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "bench")
    assert run(["bench", "run", "table1", *SMOKE, "--out", out, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["done"]) == 9
    assert answer["failed"] == {}
    results = tmp_path / "bench" / "smoke" / "results.jsonl"
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    scores = {
        line["method"]: line["scores"]["voc_ap50_area"] for line in lines if line["variant"] == {}
    }
    assert set(scores) == {
        *("baseline", "co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "mend-paper", "mend"),
    }
    noisy = {line["data"]["noisy_sha256"] for line in lines if line["noise"].get("labels")}
    assert len(noisy) == 1  # one set of noisy annotations for all methods
    assert {
        row["state"] for row in list_table_cells(capsys, "cells", "table1", *SMOKE, "--out", out)
    } == {"done"}
    assert run(["bench", "table", "table1", "--results", str(results)]) == 0
    table = capsys.readouterr().out
    for row in ("clean", *scores):
        assert f"\n| {row} " in table
    assert run(["bench", "run", "no-harm", *SMOKE, "--out", out, "--dry-run", "--json"]) == 0
    states = {row["cell"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["label0-box0-baseline-0"] == "done"  # that of table 1
    assert states["label0-box0-mend-0"] == "open"


def test_smoke_draws_its_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scales, "SMOKE_IMAGES", 10)
    first = scales.find_sources(scales.SCALES["smoke"], tmp_path, (), ())
    made = sorted(tmp_path.rglob("*.json"))
    times = [path.stat().st_mtime_ns for path in made]
    assert scales.find_sources(scales.SCALES["smoke"], tmp_path, (), ()) == first
    assert [path.stat().st_mtime_ns for path in made] == times
