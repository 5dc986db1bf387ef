"""A trainer with mending for several GPUs, where Ultralytics starts a process per GPU."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ultralytics.cfg import DEFAULT_CFG
from ultralytics.models.yolo.detect import DetectionTrainer

from boxmend.errors import UsageError
from boxmend.integrations.schedule import UpdateSchedule
from boxmend.integrations.ultralytics.attaching import Mending, detach_all, ensure_settings
from boxmend.repair.mender import MenderSettings

OPTIONS_VARIABLE = "BOXMEND_ULTRALYTICS"  # options of a MendingTrainer, which starts processes


class MendingTrainer(DetectionTrainer):  # type: ignore[misc]  # Ultralytics has no types
    """A trainer with mending for several GPUs: `model.train(trainer=MendingTrainer, ...)`.

    Ultralytics starts a process per GPU, which gets the options from `configure`.
    """

    def __init__(
        self,
        cfg: Any = DEFAULT_CFG,
        overrides: dict[str, Any] | None = None,
        _callbacks: dict[str, Any] | None = None,
    ):
        """Make a trainer that mends with the options of `configure`."""
        super().__init__(cfg, overrides, _callbacks)
        detach_all(self.callbacks)  # of the process that started this one, or an earlier training
        values = json.loads(os.environ.get(OPTIONS_VARIABLE, "{}"))
        self.mending = Mending(
            values.get("out", "run"),
            MenderSettings(**values.get("settings", {})),
            UpdateSchedule(**values.get("schedule", {})),
            dataset=values.get("dataset"),
            prescreen=values.get("prescreen"),
        )
        for event, callback in self.mending.callbacks().items():
            self.add_callback(event, callback)


def configure(
    out: str | Path = "run",
    settings: MenderSettings | None = None,
    *,
    dataset: str | Path | None = None,
    prescreen: str | Path | None = None,
    warm_up: float = UpdateSchedule.warm_up,
    every: int = UpdateSchedule.every,
) -> type[MendingTrainer]:
    """Set the options of all following `MendingTrainer`s, as for `attach`; return the class.

    They are kept in an environment variable, so that the processes of Ultralytics inherit them.
    Therefore `dataset` and `prescreen` must be addresses or files, not objects.
    """
    ensure_settings(settings)
    _ensure_text("dataset", dataset, "its address, like 'data.yaml:train'")
    _ensure_text("prescreen", prescreen, "'default' or a file of weights")
    values = {
        "out": os.path.abspath(out),
        "settings": asdict(settings or MenderSettings()),
        "schedule": asdict(UpdateSchedule(warm_up, every)),
        "dataset": None if dataset is None else str(dataset),
        "prescreen": None if prescreen is None else str(prescreen),
    }
    os.environ[OPTIONS_VARIABLE] = json.dumps(values)
    return MendingTrainer


def _ensure_text(name: str, value: Any, expected: str) -> None:
    """Raise a UsageError for an object that the processes of a training cannot inherit."""
    if value is not None and not isinstance(value, str | Path):
        raise UsageError(
            f"{name} is a {type(value).__name__}, which the processes on several GPUs cannot "
            f"inherit; pass {expected}, or use `attach` on one GPU"
        )
