"""Two processes train as one would on the same batches: same ledger, state and weights."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from boxmend.methods.protocol import SingleProcess
from boxmend.runs import folder as runs
from boxmend.runs import ledger
from boxmend.training.processes import Processes
from boxmend.training.recording import HostRecords, join_figures
from tests.training.several_processes import CASES, noisy_toys, run_case, states_of, together

ONE = Processes(torch.device("cpu"))
EACH = pytest.mark.parametrize("name", sorted(CASES))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every case trained by one process (alone/) and by two (both/)."""
    folder = tmp_path_factory.mktemp("several")
    noisy_toys(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    (folder / "alone").mkdir()
    (folder / "both").mkdir()
    for name in CASES:
        run_case(name, folder / "alone")
    for ended in together(["-m", "tests.training.several_processes", folder / "both", *CASES]):
        assert ended.returncode == 0, ended.stderr
    yield folder
    torch.set_num_threads(threads)


@EACH
def test_the_ledger_has_the_same_rows_in_the_same_order_with_the_same_verdicts(
    name: str, done: Path
) -> None:
    one, two = (ledger.read(done / kind / name) for kind in ("alone", "both"))
    assert one.num_rows == two.num_rows > 100
    assert one.column_names == two.column_names
    for column in one.column_names:
        here, there = one[column].to_numpy(), two[column].to_numpy()
        if here.dtype.kind == "f":
            np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-4, err_msg=column)
        else:
            assert here.tolist() == there.tolist()
    judges = name not in {"baseline", "disco", "note-rcnn", "oa-mil"}
    assert (len(set(one["verdict"].to_pylist())) > 1) == judges


@EACH
def test_all_processes_have_one_state_after_every_step_which_is_that_of_one_process(
    name: str, done: Path
) -> None:
    alone = states_of(name, done / "alone")
    first, second = (states_of(name, done / "both", rank) for rank in (0, 1))
    assert len(alone) == len(first) == len(second) == 9
    for one, here, there in zip(alone, first, second, strict=True):
        assert one.keys() == here.keys() == there.keys()
        for key in one:
            value, mine, theirs = (torch.as_tensor(state[key]) for state in (one, here, there))
            assert torch.equal(mine, theirs), key
            torch.testing.assert_close(mine, value, rtol=1e-5, atol=1e-5)


def test_what_is_compared_holds_something(done: Path) -> None:
    states = {name: states_of(name, done / "alone") for name in CASES}
    assert states["mend-paper"][-1]["queue"].isfinite().all()
    assert states["mend-queue"][-1]["queue"].isfinite().all()
    last = states["mend"][-1]
    assert last["residuals"].sum() > 100
    assert last["pull"][1] > 0
    assert last["visits"][:-1].min() >= 1  # some image is left over in some passes
    assert last["memory"][:-1].sum(-1).allclose(torch.ones(len(last["visits"]) - 1))


@EACH
def test_the_final_weights_are_the_same(name: str, done: Path) -> None:
    one, two = (load_file(done / kind / name / "model.safetensors") for kind in ("alone", "both"))
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=1e-6, atol=1e-7)


@EACH
def test_the_figures_are_those_of_whole_batches(name: str, done: Path) -> None:
    one, two = (runs.open_run(done / kind / name).read_metrics() for kind in ("alone", "both"))
    assert [line.keys() for line in one] == [line.keys() for line in two]
    for here, there in zip(one, two, strict=True):
        for key in here.keys() - {"images_per_second"}:
            assert there[key] == pytest.approx(here[key], rel=1e-5, abs=1e-6), key


def test_process_0_alone_writes_and_says_how_many_there_were(done: Path) -> None:
    one, two = (done / kind / "mend" for kind in ("alone", "both"))
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    assert (one / "settings.json").read_bytes() == (two / "settings.json").read_bytes()
    assert [runs.open_run(run).facts()["processes"] for run in (one, two)] == [1, 2]


FIRST_IS_SUM = np.array([True, False])


def portion(figures: list[list[float]], numbers: list[int]) -> HostRecords:
    return HostRecords(np.array(figures, np.float32), np.array(numbers), [], [], [])


def test_losses_add_up_and_shares_weigh_as_many_annotations_as_they_are_of() -> None:
    parts = [
        portion([[1.0, 0.5], [2.0, 0.25], [3.0, 0.5]], [3, 0, 0]),
        portion([[0.5, 0.1], [0.25, 0.75], [1.0, 0.1]], [1, 2, 0]),
    ]
    joined = join_figures(parts, FIRST_IS_SUM)
    # (3 * 0.5 + 1 * 0.1) / 4; only the second has any; none has, so the plain mean
    np.testing.assert_allclose(joined, [[1.5, 0.4], [2.25, 0.75], [4.0, 0.3]], rtol=1e-6)


def test_a_threshold_that_is_still_infinite_stays_so() -> None:
    parts = [portion([[1.0, np.inf]], [2]), portion([[1.0, np.inf]], [0])]
    assert join_figures(parts, FIRST_IS_SUM).tolist() == [[2.0, np.inf]]


def test_figures_of_one_process_are_left_as_they_are() -> None:
    only = portion([[1.0, np.nan]], [0])
    assert join_figures([only], FIRST_IS_SUM) is only.figures


@pytest.mark.parametrize("exchange", [ONE, SingleProcess()])
def test_one_process_exchanges_nothing(exchange: Processes | SingleProcess) -> None:
    column, mask = torch.arange(3.0), torch.tensor([True, False, True])
    gathered = exchange.all_gather(column, mask)
    assert gathered[0] is column
    assert gathered[1] is mask
    assert exchange.all_sum(column) is column


def test_one_process_decides_and_makes_by_itself() -> None:
    gradient = torch.ones(2)
    ONE.sum_gradients([gradient])
    assert gradient.tolist() == [1, 1]
    assert ONE.local_part(gradient) is not None
    assert ONE.local_part(gradient).tolist() == [1, 1]
    assert [ONE.any(True), ONE.any(False)] == [True, False]
    assert ONE.gather_objects("mine") == ["mine"]
    assert ONE.on_rank_zero(lambda: 7) == 7
    ONE.ensure_equal({"seed": "1"}, "")


@pytest.mark.parametrize(("rank", "rows"), [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])])
def test_a_part_is_a_slice_of_what_all_have_made(rank: int, rows: list[int]) -> None:
    processes = Processes(torch.device("cpu"), rank, world_size=3)
    assert processes.local_part(torch.arange(6)).tolist() == rows
