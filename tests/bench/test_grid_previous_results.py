"""Results from elsewhere: which line counts as a cell, which is refused, and what is then run."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from boxmend.bench.grids.jobs import Tries, read_job
from boxmend.bench.grids.outcomes import failed_result
from boxmend.bench.grids.planning import Plan, make_plan, match_by_name, prepare, preview
from boxmend.bench.grids.previous_results import read_previous, result_differences, result_files
from boxmend.bench.grids.results import RESULTS_FILE, Result, append_result, read_results
from boxmend.bench.grids.running import run_grid
from boxmend.errors import DataError, UsageError
from tests.bench.grid_worlds import QUICK, Pretending, pretended, ready, request

MEND, BR = "label40-box40-mend-0", "label40-box40-br-0"
BOTH = (MEND, BR)
STAGES = (MEND, "label40-box40-two-stage-0")


def change_result(result: Result, **fields: Any) -> Result:
    return msgspec.structs.replace(result, **fields)


def names(plan: Plan) -> list[str]:
    return [cell.name for cell in plan.cells]


@pytest.fixture
def line(toys: Path, tmp_path: Path) -> Result:
    """A line of the mend cell, as another machine would have left it."""
    plan = ready(toys, tmp_path / "there", only=(MEND,))
    return pretended(plan.folder(plan.cells[0]))


def with_lines(path: Path, *lines: Result) -> tuple[Path, ...]:
    for line in lines:
        append_result(path, line)
    return (path,)


def test_a_cell_that_has_a_line_is_not_run_again(toys: Path, tmp_path: Path, line: Result) -> None:
    done = with_lines(tmp_path / "brought.jsonl", line)
    plan = ready(toys, tmp_path / "here", only=BOTH, done=done)
    assert names(plan) == [BR]
    assert plan.previous[MEND].place == f"{tmp_path / 'brought.jsonl'}:1"
    executor = Pretending(2)
    run_grid(plan, executor)
    assert executor.started == [BR]
    here = read_results(tmp_path / "here" / "voc320" / RESULTS_FILE).results
    assert [one.cell for one in here] == [BR]  # lines are not copied
    assert not (tmp_path / "here" / "voc320" / "cells" / MEND).exists()


def test_where_data_and_weights_lay_and_versions_do_not_count(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    elsewhere = change_result(
        line,
        data=msgspec.structs.replace(line.data, addresses={"train": ["VOC:trainval"]}),
        versions={"boxmend": "0.0.9"},
        hardware="a toaster",
        settings={**line.settings, "log_every": 77, "checkpoint_every": 9},
    )
    done = with_lines(tmp_path / "brought.jsonl", elsewhere)
    assert MEND in ready(toys, tmp_path / "here", only=BOTH, done=done).previous


def test_weights_go_by_their_hash(toys: Path, tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"weights")
    changes = {name: value for name, value in QUICK.items() if name != "weights"}
    options: dict[str, Any] = {"only": (MEND,), "weights": weights, "changes": changes}
    plan = ready(toys, tmp_path / "there", **options)
    line = pretended(plan.folder(plan.cells[0]))
    job = read_job(plan.folder(plan.cells[0]))
    assert "w.safetensors sha256:" in line.settings["weights"]
    renamed = line.settings["weights"].replace("w.safetensors", "other.safetensors")
    assert (
        result_differences(change_result(line, settings={**line.settings, "weights": renamed}), job)
        == []
    )
    weights.write_bytes(b"others")
    done = with_lines(tmp_path / "brought.jsonl", line)
    with pytest.raises(UsageError, match=r"settings.weights: 'sha256:\w+', now 'sha256:\w+'"):
        ready(toys, tmp_path / "here", done=done, **options)


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"seed": 4}, "seed: 4, now 0"),
        ({"method": "br"}, "method: 'br', now 'mend'"),
        ({"variant": {"mend.raw_box_share": 0.4}}, "variant: {'mend.raw_box_share': 0.4}, now {}"),
    ],
)
def test_differences_between_cells_are_listed(
    fields: dict[str, Any], difference: str, toys: Path, tmp_path: Path, line: Result
) -> None:
    done = with_lines(tmp_path / "brought.jsonl", change_result(line, **fields))
    with pytest.raises(UsageError, match="--done has results of these cells") as refused:
        ready(toys, tmp_path / "here", only=BOTH, done=done)
    assert difference in str(refused.value)
    assert not (tmp_path / "here" / "voc320" / "cells").exists()


def test_a_line_of_other_settings_or_data_is_refused_or_run_anew(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    settings = {
        **line.settings,
        "epochs": 7,
        "mend": {**line.settings["mend"], "raw_box_min_share": 0.9},
    }
    data = msgspec.structs.replace(line.data, val_sha256="0" * 64)
    done = with_lines(tmp_path / "brought.jsonl", change_result(line, settings=settings, data=data))
    with pytest.raises(UsageError) as refused:
        ready(toys, tmp_path / "here", only=BOTH, done=done)
    for text in (
        f"{MEND} ({done[0]}:1)",
        "data.val_sha256: '0000",
        "settings.epochs: 7, now 1",
        "settings.mend.raw_box_min_share: 0.9, now 0.4",
        "--ignore-differing",
    ):
        assert text in str(refused.value)
    plan = ready(toys, tmp_path / "here", only=BOTH, done=done, ignore_differing=True)
    assert sorted(names(plan)) == sorted(BOTH)
    assert dict(plan.previous) == {}


def test_settings_of_other_methods_and_ones_not_written_down_do_not_count(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    folder = tmp_path / "there" / "voc320" / "cells" / MEND
    job = read_job(folder)
    other = {**line.settings, "published": {"queue_length": 7}}
    assert result_differences(change_result(line, settings=other), job) == []
    older = {name: value for name, value in line.settings.items() if name != "difficult"}
    assert result_differences(change_result(line, settings=older), job) == []


def test_numbers_that_are_left_to_the_detector_are_as_it_has_them(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    job = read_job(tmp_path / "there" / "voc320" / "cells" / MEND)
    changed_line = change_result(line, settings={**line.settings, "proposals": 150})
    assert result_differences(changed_line, job) == ["settings.proposals: 150, now 300"]
    left = msgspec.structs.replace(job, settings={**job.settings, "proposals": None})
    assert result_differences(changed_line, left) == []


def test_of_several_lines_the_last_that_fits_counts(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    other = change_result(line, settings={**line.settings, "epochs": 7})
    failed = change_result(line, error="out of luck", scores={})
    done = with_lines(tmp_path / "brought.jsonl", line, line, other, failed)
    plan = ready(toys, tmp_path / "here", only=BOTH, done=done)
    assert plan.previous[MEND].number == 2


def test_a_failed_line_is_no_result(toys: Path, tmp_path: Path, line: Result) -> None:
    done = with_lines(tmp_path / "brought.jsonl", change_result(line, error="no", scores={}))
    assert sorted(names(ready(toys, tmp_path / "here", only=BOTH, done=done))) == sorted(BOTH)


def test_lines_of_another_scale_are_passed_over(toys: Path, tmp_path: Path, line: Result) -> None:
    done = with_lines(tmp_path / "brought.jsonl", change_result(line, scale="paper"))
    assert MEND in names(ready(toys, tmp_path / "here", only=BOTH, done=done))


def test_what_was_done_here_counts_before_lines(toys: Path, tmp_path: Path, line: Result) -> None:
    other = change_result(line, settings={**line.settings, "epochs": 7})
    done = with_lines(tmp_path / "brought.jsonl", other)
    plan = ready(toys, tmp_path / "there", only=BOTH, done=done)  # where the line was made
    assert dict(plan.previous) == {}
    executor = Pretending()
    run_grid(plan, executor)
    assert executor.started == [BR]


def stages(toys: Path, out: Path) -> tuple[Result, Result]:
    """Lines of a first and a second stage that belong together."""
    plan = ready(toys, out, "two-stage", only=STAGES)
    first, second = (pretended(plan.folder(cell)) for cell in plan.cells)
    return first, change_result(second, started="2026-11-16T01:00:00+00:00")


def test_a_first_stage_of_which_there_is_a_line_alone_is_trained_again(
    toys: Path, tmp_path: Path
) -> None:
    first, second = stages(toys, tmp_path / "there")
    done = with_lines(tmp_path / "first.jsonl", first)
    plan = ready(toys, tmp_path / "here", "two-stage", only=STAGES, done=done)
    assert names(plan) == list(STAGES)
    assert plan.retrained == {STAGES[0]: STAGES[1]}
    assert dict(plan.previous) == {}
    assert run_grid(plan, Pretending(2)).done == list(STAGES)

    both = with_lines(tmp_path / "both.jsonl", first, second)
    plan = ready(toys, tmp_path / "other", "two-stage", only=STAGES, done=both)
    assert names(plan) == []
    assert set(plan.previous) == set(STAGES)


def test_a_first_stage_that_nothing_is_left_for_is_not_run(toys: Path, tmp_path: Path) -> None:
    _, second = stages(toys, tmp_path / "there")
    done = with_lines(tmp_path / "second.jsonl", second)
    plan = ready(toys, tmp_path / "here", "two-stage", only=STAGES[1:], done=done)
    assert names(plan) == []


def test_a_second_stage_of_an_older_first_one_is_stale(toys: Path, tmp_path: Path) -> None:
    first, second = stages(toys, tmp_path / "there")
    older = change_result(first, settings={**first.settings, "epochs": 7})
    newer = change_result(first, started="2026-11-16T02:00:00+00:00")
    done = with_lines(tmp_path / "done.jsonl", older, second, newer)
    with pytest.raises(UsageError, match=f"needs {STAGES[0]}, which was run again since"):
        ready(toys, tmp_path / "here", "two-stage", only=STAGES, done=done)
    options: dict[str, Any] = {"only": STAGES, "done": done, "ignore_differing": True}
    plan = ready(toys, tmp_path / "here", "two-stage", **options)
    assert names(plan) == list(STAGES)
    assert plan.retrained == {STAGES[0]: STAGES[1]}


def test_a_dry_run_writes_nothing_and_compares_what_it_can(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    done = with_lines(tmp_path / "brought.jsonl", line)
    wanted = request(toys, tmp_path / "here", only=BOTH, done=done)
    plan = preview(make_plan(wanted), wanted)
    assert (names(plan), set(plan.previous)) == ([BR], {MEND})
    assert not (tmp_path / "here").exists()
    other = request(toys, tmp_path / "here", only=BOTH, done=done, data=(f"{toys}:val",))
    with pytest.raises(UsageError, match=r"data\.train_sha256"):
        preview(make_plan(other), other)
    longer = {**QUICK, "epochs": 3}
    other = request(toys, tmp_path, only=BOTH, done=done, data=(), val=(), changes=longer)
    with pytest.raises(UsageError, match=r"settings\.epochs: 1, now 3"):
        preview(make_plan(other), other)
    assert set(match_by_name(make_plan(other), other).previous) == {MEND}


def test_files_that_are_none_are_named_and_torn_lines_warned_of(
    toys: Path, tmp_path: Path, line: Result
) -> None:
    wanted = request(toys, tmp_path / "here", only=BOTH, done=(tmp_path / "no.jsonl",))
    with pytest.raises(DataError, match=r"no\.jsonl: cannot be read"):
        prepare(make_plan(wanted), wanted)
    path = with_lines(tmp_path / "torn" / RESULTS_FILE, line)[0]
    path.write_bytes(path.read_bytes() + b'{"cell":')
    plan = ready(toys, tmp_path / "here", only=BOTH, done=(tmp_path / "torn",))
    assert set(plan.previous) == {MEND}
    assert "line 2 was cut off" in plan.warnings[0]


def test_folders_stand_for_the_files_in_them(tmp_path: Path, line: Result) -> None:
    for place in (RESULTS_FILE, f"voc320/{RESULTS_FILE}"):
        append_result(tmp_path / "grid" / place, line)
    files = result_files([tmp_path / "grid", tmp_path / "grid" / RESULTS_FILE])
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        f"grid/{RESULTS_FILE}",
        f"grid/voc320/{RESULTS_FILE}",
    ]
    lines, _ = read_previous([tmp_path / "grid"], "voc320")
    assert len(lines[MEND]) == 2


def test_a_killed_cell_leaves_no_line_that_counts(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path / "there", only=(MEND,))
    folder = plan.folder(plan.cells[0])
    killed = failed_result(folder, read_job(folder), Tries(), "2026-11-16T00:00:00+00:00", "killed")
    assert read_previous(with_lines(tmp_path / "x.jsonl", killed), "voc320")[0] == {}
