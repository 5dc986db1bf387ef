"""The folder of a cell: the requested job is compared with the saved one, and gives the state."""

from pathlib import Path

import msgspec
import pytest
from msgspec import to_builtins

from boxmend.bench.grids.jobs import (
    JOB_FILE,
    LOCK_FILE,
    State,
    job_differences,
    own_settings,
    read_job,
    save_job,
    state_of,
)
from boxmend.bench.grids.planning import make_plan, prepare
from boxmend.bench.grids.results import RESULTS_FILE, read_results
from boxmend.cli import run
from boxmend.data.files.locks import HeldError, hold_lock, is_held, wait_for_lock
from boxmend.errors import DataError, UsageError
from tests.bench.grid_worlds import QUICK, begun, pretended, ready, request


def test_the_folder_determines_the_state(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    assert folder == tmp_path / "voc320" / "cells" / "label40-box40-mend-0"
    assert state_of(folder) is State.OPEN
    begun(folder)
    assert state_of(folder) is State.STOPPED
    with hold_lock(folder / LOCK_FILE):
        assert state_of(folder) is State.RUNNING
    pretended(folder, "out of luck")
    assert state_of(folder) is State.FAILED
    pretended(folder)
    assert state_of(folder) is State.DONE
    assert [result.error for result in read_results(plan.root / RESULTS_FILE).results] == [
        "out of luck",
        None,
    ]


def test_a_cell_that_was_not_begun_takes_other_settings(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    ready(toys, tmp_path, changes={**QUICK, "epochs": 7})
    assert read_job(plan.folder(plan.cells[0])).settings["epochs"] == 7


def test_a_job_of_format_1_is_read_with_the_present_names(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    job = read_job(folder)
    keys = to_builtins(job)
    keys["told"] = keys.pop("known_rates")
    del keys["format"]
    (folder / JOB_FILE).write_bytes(msgspec.json.encode(keys))
    assert read_job(folder) == job


def test_a_finished_cell_is_not_confused_with_another(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    pretended(folder)
    before = (folder / "cell.json").read_bytes()
    ready(toys, tmp_path)
    with pytest.raises(UsageError, match=r"(?s)other settings or data.*epochs: 1, now 7.*--out"):
        ready(toys, tmp_path, changes={**QUICK, "epochs": 7})
    with pytest.raises(UsageError, match=r"(?s)train_sha256: '[0-9a-f]+', now '"):
        ready(toys, tmp_path, data=(f"{toys}:val",))
    assert (folder / "cell.json").read_bytes() == before


def test_settings_of_other_methods_and_new_ones_do_not_count(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    job = read_job(plan.folder(plan.cells[0]))
    other = {**job.settings, "published": {**job.settings["published"], "queue_length": 7}}
    assert job_differences(job, msgspec.structs.replace(job, settings=other)) == []
    other = {**job.settings, "mend": {**job.settings["mend"], "raw_box_min_share": 0.9}}
    assert job_differences(job, msgspec.structs.replace(job, settings=other)) == [
        "mend.raw_box_min_share: 0.4, now 0.9"
    ]
    older = {name: value for name, value in job.settings.items() if name != "strict"}
    assert job_differences(msgspec.structs.replace(job, settings=older), job) == []


def test_a_cell_that_was_begun_keeps_settings_that_do_not_matter(
    toys: Path, tmp_path: Path
) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    begun(folder)
    job = read_job(folder)
    settings = {**job.settings, "disco": {"samples": 99}}
    save_job(folder, msgspec.structs.replace(job, settings=settings, train=["elsewhere"]))
    kept = read_job(folder)
    assert kept.settings == job.settings
    assert kept.train == ["elsewhere"]


def test_weights_are_known_by_content_wherever_they_lie(toys: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name / "w.safetensors" for name in "abc")
    for path, content in ((first, b"one"), (second, b"one"), (third, b"three")):
        path.parent.mkdir()
        path.write_bytes(content)
    plan = ready(toys, tmp_path, weights=first)
    pretended(plan.folder(plan.cells[0]))
    assert read_job(plan.folder(plan.cells[0])).weights_sha256 is not None
    ready(toys, tmp_path, weights=second)
    with pytest.raises(UsageError, match="weights_sha256"):
        ready(toys, tmp_path, weights=third)
    with pytest.raises(UsageError, match="cannot be read"):
        ready(toys, tmp_path, weights=tmp_path / "none")


def test_own_settings_are_those_of_the_method() -> None:
    settings = {"seed": 1, "optimisation": {"lr": 1}, "mend": {"a": 1}, "published": {"b": 2}}
    assert set(own_settings(settings, "mend")) == {"seed", "optimisation", "mend"}
    assert set(own_settings(settings, "lr")) == {"seed", "optimisation", "published"}


def test_the_message_names_the_file_of_a_truncated_job(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    path = plan.folder(plan.cells[0]) / "cell.json"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=r"cell\.json: cannot be read"):
        ready(toys, tmp_path)


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    assert not path.exists()
    with wait_for_lock(path):
        assert is_held(path)
        with pytest.raises(HeldError), hold_lock(path, max_wait_seconds=0.1):
            pass
    assert not is_held(path)


def test_wrong_settings_leave_nothing_behind(toys: Path, tmp_path: Path) -> None:
    wanted = request(toys, tmp_path / "out", changes={"epochs": "many"})
    with pytest.raises(UsageError, match="--set: epochs: Expected `int`, got `str`"):
        make_plan(wanted)
    assert not (tmp_path / "out").exists()


def test_data_without_annotations_are_refused(tmp_path: Path) -> None:
    assert run(["synth", "--images", "5", "--out", str(tmp_path / "toys")]) == 0
    empty = tmp_path / "empty.json"
    empty.write_text('{"images": [], "annotations": [], "categories": []}')
    wanted = request(tmp_path / "toys", tmp_path / "out", data=(str(empty),))
    with pytest.raises(DataError, match=r"--data .*empty.json: there are no annotations"):
        prepare(make_plan(wanted), wanted)
