"""Trackers: listeners that hand the lines of the log on to TensorBoard, wandb or mlflow.

Each is a function of the run's folder that imports its package at once, so that a missing one is
told before anything begins, and opens its record with the first line, when the run is there.
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
    package = _imported("torch.utils.tensorboard", "tensorboard")
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
    """Log the figures to a run of the project "boxmend", which a resumed run goes on with."""
    package = _imported("wandb", "wandb")
    begun: list[Any] = []

    def listen(line: dict[str, Any]) -> None:
        figures = _figures(line)
        if figures and not begun:
            known = _read(run / "wandb.id")
            begun.append(
                package.init(
                    project="boxmend",
                    name=run.name,
                    dir=str(run),
                    config=_settings(run),
                    id=known,
                    resume="allow" if known else None,
                )
            )
            (run / "wandb.id").write_text(begun[0].id)
        if figures:
            begun[0].log(figures, step=_step(line))
        if "summary" in line and begun:
            begun[0].finish()

    return listen


def mlflow(run: Path) -> Listener:
    """Log the figures to a run of mlflow, which a resumed run goes on with."""
    package = _imported("mlflow", "mlflow")
    begun: list[Any] = []

    def listen(line: dict[str, Any]) -> None:
        figures = _figures(line)
        if figures and not begun:
            known = _read(run / "mlflow.id")
            begun.append(package.start_run(run_id=known, run_name=None if known else run.name))
            if known is None:
                (run / "mlflow.id").write_text(begun[0].info.run_id)
                package.log_params(_flat(_settings(run)))
        if figures:
            package.log_metrics(figures, step=_step(line))
        if "summary" in line and begun:
            package.end_run()

    return listen


TRACKERS: dict[str, Callable[[Path], Listener]] = {
    "mlflow": mlflow,
    "tensorboard": tensorboard,
    "wandb": wandb,
}


def follow(names: Sequence[str], run: Path) -> Listener:
    """Make one listener of several trackers; one that fails is left out from then on.

    A training is not worth less because a server is down, so that is a warning.
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
                _LOG.warning("%s hears no more of this run: %s", name, error)
                del listeners[name]

    return listen


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{package} is not installed, or not in full ({error}): pip install {package}"
        ) from error


def _figures(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line; of a summary, those of the final score."""
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
    """Nested settings by their dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        leaves |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return leaves


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
