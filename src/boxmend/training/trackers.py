"""Trackers: listeners that pass the lines of the log on to TensorBoard, wandb or mlflow.

Each tracker is made for the folder of a run. It imports its package at once, so a missing package
is an error before the training starts. It opens its record at the first line, when the run exists.
"""

import importlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from boxmend.errors import UsageError
from boxmend.training.recording import Listener

_LOG = logging.getLogger(__name__)


def tensorboard(run: Path) -> Listener:
    """Write the figures as events into RUN/tensorboard."""
    package = _import_package("torch.utils.tensorboard", "tensorboard")
    writers: list[Any] = []

    def listen(line: dict[str, Any]) -> None:
        figures, step = _figures(line), _step(line)
        if figures and not writers:  # a resumed run replaces what came after its checkpoint
            folder = str(run / "tensorboard")
            writers.append(package.SummaryWriter(folder, purge_step=step))
        for writer in writers:
            for name, value in figures.items():
                writer.add_scalar(name, value, step)
            writer.flush()
            if "summary" in line:
                writer.close()

    return listen


def wandb(run: Path) -> Listener:
    """Log the figures to a run of the wandb project "boxmend"; a resumed run continues it."""
    package = _import_package("wandb", "wandb")
    opened: list[Any] = []

    def listen(line: dict[str, Any]) -> None:
        figures = _figures(line)
        if figures and not opened:
            known = _read(run / "wandb.id")
            opened.append(
                package.init(
                    project="boxmend",
                    name=run.name,
                    dir=str(run),
                    config=_settings(run),
                    id=known,
                    resume="allow" if known else None,
                )
            )
            (run / "wandb.id").write_text(opened[0].id)
        if figures:
            opened[0].log(figures, step=_step(line))
        if "summary" in line and opened:
            opened[0].finish()

    return listen


def mlflow(run: Path) -> Listener:
    """Log the figures to a run of mlflow; a resumed run continues it."""
    package = _import_package("mlflow", "mlflow")
    opened: list[Any] = []

    def listen(line: dict[str, Any]) -> None:
        figures = _figures(line)
        if figures and not opened:
            known = _read(run / "mlflow.id")
            opened.append(package.start_run(run_id=known, run_name=None if known else run.name))
            if known is None:
                (run / "mlflow.id").write_text(opened[0].info.run_id)
                package.log_params(_flat(_settings(run)))
        if figures:
            package.log_metrics(figures, step=_step(line))
        if "summary" in line and opened:
            package.end_run()

    return listen


TRACKERS: dict[str, Callable[[Path], Listener]] = {
    "mlflow": mlflow,
    "tensorboard": tensorboard,
    "wandb": wandb,
}


def follow(names: Sequence[str], run: Path) -> Listener:
    """Return one listener for several trackers.

    A tracker that raises is dropped with a warning, so a failing server does not end the training.
    """
    for name in names:
        if name not in TRACKERS:
            known = ", ".join(sorted(TRACKERS))
            raise UsageError(f"unknown tracker {name!r}; known: {known}")
    listeners = {name: TRACKERS[name](run) for name in names}

    def listen(line: dict[str, Any]) -> None:
        for name, listener in list(listeners.items()):
            try:
                listener(line)
            except Exception as error:
                _LOG.warning("%s failed and gets no more lines of this run: %s", name, error)
                del listeners[name]

    return listen


def _import_package(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{package} is not installed completely ({error}): pip install {package}"
        ) from error


def _figures(line: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a line; for a summary, those of the final score."""
    if "summary" in line:
        score = line["summary"].get("val", {})
        return {f"final_{name}": float(value) for name, value in score.items()}
    if "step" not in line:
        return {}
    return {
        name: float(value)
        for name, value in line.items()
        if name not in ("step", "epoch_ends") and isinstance(value, int | float)
    }


def _step(line: dict[str, Any]) -> int | None:
    step: int | None = line["summary"]["steps"] if "summary" in line else line.get("step")
    return step


def _settings(run: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((run / "settings.json").read_bytes())
    return settings


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        leaves |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return leaves


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
