"""A callback that mends the annotations of a training by Hugging Face's Trainer."""

import math
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils.logging import get_logger

from boxmend.auditing.predictions import Predictions
from boxmend.errors import UsageError
from boxmend.integrations.checkpoints import read_state, save_state
from boxmend.integrations.schedule import UpdateSchedule
from boxmend.integrations.transformers.images import TrainingImages
from boxmend.integrations.transformers.predicting import predict
from boxmend.integrations.updating import finish_run, update_mender
from boxmend.repair.mender import Mender, MenderSettings
from boxmend.repair.trained_runs import TrainedRun

LOGGER = get_logger("transformers.boxmend")  # Transformers shows what its children log
ROUNDING_ERROR = 1e-6  # of the number of epochs


class MendingTrainerCallback(TrainerCallback):  # type: ignore[misc]  # untyped if not installed
    """Mends the annotations of a training by Hugging Face's Trainer at the start of some epochs."""

    def __init__(
        self,
        images: TrainingImages,
        out: str | Path = "run",
        settings: MenderSettings | None = None,
        *,
        prescreen: ArrayLike | None = None,
        warm_up: float = UpdateSchedule.warm_up,
        every: int = UpdateSchedule.every,
    ):
        """Prepare to mend the annotations of `images`, the `train_dataset`; `out` becomes a run.

        The first update follows after the share `warm_up` of the epochs, the others every `every`
        epochs.
        """
        self.images, self.out, self.settings = images, Path(out), settings
        self.schedule = UpdateSchedule(warm_up, every)
        self.mender: Mender | None = None  # from the start of the training
        self.run: TrainedRun | None = None  # from the end of the training
        self._prescreen = prescreen

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Start the run, or resume it with the state in the folder of the checkpoint."""
        self._ensure_supported(args, parts["model"], parts["train_dataloader"])
        is_resumed = state.global_step > 0
        saved = read_state(_checkpoint_folder(args, state)) if is_resumed else None
        self.mender = Mender(
            self.images.dataset,
            self.settings,
            out=self.out,
            prescreen=self._prescreen,
            resume=is_resumed,
        )
        if saved is not None:
            self.mender.load_state_dict(saved)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Update the annotations if it is time, and exchange them."""
        assert self.mender is not None
        epoch = math.floor((state.epoch or 0) + ROUNDING_ERROR)
        is_due = self.schedule.is_due(epoch, state.num_train_epochs)
        if is_due and epoch > self.mender.last_epoch:
            update_mender(self.mender, epoch, lambda: self._predict(args, parts["model"]), LOGGER)
        self.images.exchange(self.mender.annotations())

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Write the state of the Mender into the folder of the checkpoint."""
        if self.mender is not None and self.run is None:
            save_state(self.mender.state_dict(), _checkpoint_folder(args, state))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Update the annotations a last time, and finish the run."""
        assert self.mender is not None
        epoch = math.ceil((state.epoch or 0) - ROUNDING_ERROR)
        self.run = finish_run(
            self.mender, epoch, lambda: self._predict(args, parts["model"]), LOGGER
        )
        self.release()

    def release(self) -> None:
        """Release the folder of an unfinished run, to resume it in the same process."""
        if self.mender is not None and self.run is None:
            self.mender.close()
            self.mender = None

    def _predict(self, args: TrainingArguments, model: Any) -> Predictions:
        return predict(
            model, self.images, args.eval_batch_size, num_workers=args.dataloader_num_workers
        )

    def _ensure_supported(self, args: TrainingArguments, model: Any, loader: Any) -> None:
        """Raise a UsageError for a training that this callback cannot mend."""
        if args.world_size > 1:
            raise UsageError(
                f"the training has {args.world_size} processes; boxmend supports one process with "
                "Hugging Face's Trainer"
            )
        if args.dataloader_persistent_workers:
            raise UsageError(
                "persistent workers keep a copy of the old annotations; set "
                "dataloader_persistent_workers=False"
            )
        if loader.dataset is not self.images:
            raise UsageError(
                "the Trainer has another train_dataset than the callback; pass the same "
                "TrainingImages to both"
            )
        num_labels, names = model.config.num_labels, self.images.dataset.label_names
        if num_labels != len(names):
            raise UsageError(
                f"the model has {num_labels} labels, and the dataset has {len(names)}; make the "
                "model with num_labels=len(dataset.label_names)"
            )


def _checkpoint_folder(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
