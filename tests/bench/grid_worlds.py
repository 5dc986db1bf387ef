"""Small grids for tests: few toys, an epoch or two, and processes that only pretend to train."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.executors import Process
from boxmend.bench.grids.jobs import RUN_FOLDER, Tries, read_job
from boxmend.bench.grids.outcomes import failed_result, record_result
from boxmend.bench.grids.planning import GridRequest, Plan, make_plan, prepare
from boxmend.bench.grids.results import Result
from boxmend.runs.settings import TrainSettings

STARTED = "2026-11-16T00:00:00+00:00"
NOISY = Cell("symmetric:0.4", "uniform:0.4", "mend", (), 0)
QUICK = {
    "detector": "tiny",
    "weights": "none",
    "image_size": "96",
    "batch_size": 8,
    "epochs": 1,
    "log_every": 1,
    "checkpoint_every": 1,
    "optimisation.optimizer": "adamw",
    "optimisation.lr": 0.001,
}


def request(toys: Path, out: Path, name: str = "table1", **others: object) -> GridRequest:
    """A part of a grid on few toys, trained for a moment."""
    options: dict[str, object] = {
        "scale": "voc320",
        "data": (f"{toys}:train",),
        "val": (f"{toys}:val",),
        "only": ("label40-box40-mend-0",),
        "changes": QUICK,
    }
    return GridRequest(names=(name,), out=out, **{**options, **others})  # type: ignore[arg-type]


def ready(toys: Path, out: Path, name: str = "table1", **others: object) -> Plan:
    """The same, with a job in the folder of every cell."""
    wanted = request(toys, out, name, **others)
    return prepare(make_plan(wanted), wanted)


def pretended(folder: Path, error: str | None = None) -> Result:
    """Record a cell as done, or as failed."""
    result = failed_result(folder, read_job(folder), Tries(1, 2.0), STARTED, error or "")
    if error is None:
        import msgspec

        result = msgspec.structs.replace(result, error=None, scores={"voc_ap50_area": 0.5})
    record_result(folder, result)
    return result


def begun(folder: Path) -> None:
    """Leave what a killed training does, as far as states tell."""
    (folder / RUN_FOLDER).mkdir(parents=True)


@dataclass
class Ending:
    """A process that is over at the second look."""

    status: int
    looks: int = 0
    asked: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        self.looks += 1
        return self.status if self.looks > 1 or self.asked else None

    def stop(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")


class Pretending:
    """An executor whose cells finish at once, except those with another ending."""

    outlives = False

    def __init__(self, capacity: int = 2, **endings: int | str):
        """`endings` are by method: a status without a record, or the error of a failure."""
        self.capacity = capacity
        self.endings = endings
        self.started: list[str] = []

    def start(self, folders: Sequence[Path]) -> list[Process]:
        assert len(folders) <= self.capacity
        return [self._started(folder) for folder in folders]

    def _started(self, folder: Path) -> Process:
        self.started.append(folder.name)
        ending = self.endings.get(read_job(folder).method.replace("-", "_"), 0)
        if isinstance(ending, str):
            pretended(folder, ending)
            return Ending(3)
        if ending == 0:
            pretended(folder)
        return Ending(ending)


def default_settings() -> TrainSettings:
    """The settings of a training by default."""
    return TrainSettings()
