"""A callback that mends the annotations of a Lightning training."""

from collections.abc import Callable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import CombinedLoader
from numpy.typing import ArrayLike

from boxmend.auditing.predictions import Predictions
from boxmend.data.dataset import Dataset
from boxmend.errors import DataError, UsageError
from boxmend.integrations.checkpoints import decode_state, encode_state
from boxmend.integrations.evaluating import evaluate_mode
from boxmend.integrations.schedule import UpdateSchedule
from boxmend.integrations.updating import finish_run, update_mender
from boxmend.repair.mender import MendedAnnotations, Mender, MenderSettings
from boxmend.repair.trained_runs import TrainedRun

LOGGER = getLogger("lightning.pytorch.boxmend")  # Lightning shows what its children log


class MendingCallback(Callback):  # type: ignore[misc]  # untyped where Lightning is not installed
    """Mends the annotations of a Lightning training at the start of some epochs."""

    def __init__(  # noqa: PLR0913  # the options of a training
        self,
        dataset: Dataset,
        out: str | Path = "run",
        settings: MenderSettings | None = None,
        *,
        predict: Callable[[Trainer, LightningModule], Predictions],
        exchange: Callable[[MendedAnnotations], object],
        prescreen: ArrayLike | None = None,
        warm_up: float = UpdateSchedule.warm_up,
        every: int = UpdateSchedule.every,
    ):
        """Prepare to mend the annotations of `dataset`; `out` becomes a run.

        `predict` returns the detections of the module in the training images, without augmentation
        and in pixels of the images. It is called in evaluation mode, without gradients. `exchange`
        is called with the annotations to train on from now on. The first update follows after the
        share `warm_up` of the epochs, the others every `every` epochs.
        """
        self.dataset, self.out, self.settings = dataset, Path(out), settings
        self.schedule = UpdateSchedule(warm_up, every)
        self.mender: Mender | None = None  # from the start of the training, in the first process
        self.run: TrainedRun | None = None  # from the end of the training
        self._predict, self._exchange, self._prescreen = predict, exchange, prescreen
        self._state: dict[str, Any] = {}  # of the checkpoint, then of the finished run
        self._first_epoch = 0  # of this call of Trainer.fit
        self._is_loader_outdated = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start or resume the run; exchange annotations before the loader starts its workers."""
        _ensure_supported(trainer)
        if trainer.is_global_zero:
            is_resumed = trainer.ckpt_path is not None
            if is_resumed and not self._state:
                raise DataError(
                    f"{trainer.ckpt_path} has no state of a Mender, so its training was not "
                    "mended: resume it without boxmend, or start a new training"
                )
            self.mender = Mender(
                self.dataset,
                self.settings,
                out=self.out,
                prescreen=self._prescreen,
                resume=is_resumed,
            )
            if is_resumed:
                self.mender.load_state_dict(self._state)
        self._share_annotations(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the first epoch, whose batches Lightning already prepares."""
        self._first_epoch = trainer.current_epoch

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Update the annotations if it is time, and exchange them."""
        epoch = trainer.current_epoch
        if self.schedule.is_due(epoch, trainer.max_epochs):
            if self.mender is not None:
                update_mender(self.mender, epoch, self._bind_predict(trainer, pl_module), LOGGER)
            self._share_annotations(trainer)
            self._is_loader_outdated = True
        if self._is_loader_outdated and epoch > self._first_epoch:
            CombinedLoader(trainer.train_dataloader).reset()  # persistent workers have copies
            self._is_loader_outdated = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Update the annotations a last time, and finish the run."""
        if self.mender is not None:
            self._state = self.mender.state_dict()
            predict = self._bind_predict(trainer, pl_module)
            self.run = finish_run(self.mender, trainer.current_epoch, predict, LOGGER)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Release the folder of the run, to resume it in the same process."""
        self._release()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Release the folder of a run that could not be finished."""
        self._release()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the Mender for Lightning's checkpoint, as a tensor of bytes."""
        is_open = self.mender is not None and self.run is None
        state = self.mender.state_dict() if is_open and self.mender else self._state
        return {"mender": torch.tensor(encode_state(state), dtype=torch.uint8)} if state else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Keep the state of a checkpoint until the training starts."""
        self._state = decode_state(state_dict["mender"].cpu().numpy().tobytes())

    def _bind_predict(self, trainer: Trainer, module: LightningModule) -> Callable[[], Predictions]:
        def predict() -> Predictions:
            with torch.no_grad(), evaluate_mode(module):
                return self._predict(trainer, module)

        return predict

    def _share_annotations(self, trainer: Trainer) -> None:
        """Exchange the annotations of the first process in all processes."""
        annotations = None if self.mender is None else self.mender.annotations()
        if trainer.world_size > 1:
            annotations = trainer.strategy.broadcast(annotations)
        assert annotations is not None
        self._exchange(annotations)

    def _release(self) -> None:
        if self.mender is not None and self.run is None:
            self.mender.close()
            self.mender = None


def _ensure_supported(trainer: Trainer) -> None:
    """Raise a UsageError for a training that a MendingCallback cannot mend."""
    if trainer.max_epochs is None or trainer.max_epochs < 1:
        raise UsageError(
            "the number of epochs is unknown, and updates are planned by it; pass max_epochs to "
            "the Trainer"
        )
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        raise UsageError(
            f"the strategy is {type(trainer.strategy).__name__}; boxmend supports a single device "
            "and DDP, since only the first process predicts"
        )
