"""Callbacks that mend the annotations of an Ultralytics training."""

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed
from numpy.typing import ArrayLike
from ultralytics.utils import LOGGER, RANK
from ultralytics.utils.torch_utils import unwrap_model

from boxmend.data.arguments import check_type
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.integrations.checkpoints import read_state, save_state
from boxmend.integrations.schedule import UpdateSchedule
from boxmend.integrations.ultralytics.folders import ensure_usable
from boxmend.integrations.ultralytics.labels import TrainingLabels
from boxmend.integrations.ultralytics.predicting import Predictor, ensure_supported_model
from boxmend.integrations.ultralytics.reading import read_training_split
from boxmend.integrations.ultralytics.soft_labels import soften_targets
from boxmend.integrations.updating import finish_run, update_mender
from boxmend.repair.mender import MendedAnnotations, Mender, MenderSettings
from boxmend.repair.trained_runs import TrainedRun
from boxmend.training.label_probabilities import prescreen as judge_labels


def attach(  # noqa: PLR0913  # the options of a training
    model: Any,
    out: str | Path = "run",
    settings: MenderSettings | None = None,
    *,
    dataset: Dataset | str | Path | None = None,
    prescreen: ArrayLike | str | Path | None = None,
    warm_up: float = UpdateSchedule.warm_up,
    every: int = UpdateSchedule.every,
) -> "Mending":
    """Mend the annotations of the next training of an Ultralytics `YOLO` model.

    `out` becomes a run, like those of `boxmend train`. `dataset`, or its address, is by default the
    train split of the training's data.yaml. `prescreen` judges the labels before the training: give
    the weights of a ResNet-50 as for `boxmend.prescreen`, a file or "default", or a probability of
    every label for every annotation of the dataset. The first update follows after the share
    `warm_up` of the epochs, the others every `every` epochs. A later call replaces an earlier one.
    """
    if not isinstance(getattr(model, "callbacks", None), dict):
        raise UsageError(
            f"the model of attach is {model!r}; pass a model of Ultralytics, like "
            "YOLO('yolo11n.yaml')"
        )
    mending = Mending(
        out, settings, UpdateSchedule(warm_up, every), dataset=dataset, prescreen=prescreen
    )
    for earlier in detach_all(model.callbacks):
        if earlier.is_unused:
            LOGGER.warning(
                f"boxmend: the mending into {earlier.out} was attached but not used; the mending "
                f"into {mending.out} replaces it"
            )
        earlier.release()
    for event, callback in mending.callbacks().items():
        model.add_callback(event, callback)
    return mending


def detach_all(callbacks: dict[str, Any]) -> list["Mending"]:
    """Remove the functions of all Mendings from callbacks by event; return the Mendings."""
    owners: dict[int, Mending] = {}
    for event, functions in callbacks.items():
        kept = []
        for function in functions:
            owner = getattr(function, "__self__", None)
            if isinstance(owner, Mending):
                owners[id(owner)] = owner
            else:
                kept.append(function)
        callbacks[event] = kept
    return list(owners.values())


def ensure_settings(settings: Any) -> None:
    """Raise a UsageError if settings are not those of a Mender."""
    if settings is not None:
        check_type("settings", settings, MenderSettings, "boxmend.MenderSettings(...)")


class Mending:
    """The mending of a training, as callbacks of its trainer."""

    def __init__(
        self,
        out: str | Path,
        settings: MenderSettings | None = None,
        schedule: UpdateSchedule | None = None,
        *,
        dataset: Dataset | str | Path | None = None,
        prescreen: ArrayLike | str | Path | None = None,
    ):
        """Prepare to mend a training; see `attach`."""
        ensure_settings(settings)
        self.out = Path(out)
        self.settings, self.schedule = settings, schedule or UpdateSchedule()
        self._dataset = dataset
        self._prescreen = prescreen
        self.mender: Mender | None = None  # from the start of the training, in the first process
        self.run: TrainedRun | None = None  # from the end of the training
        self._has_begun = self._is_over = False  # a Mending is for one training
        self._saved_epochs: dict[Path, int] = {}  # of the last update, by checkpoint
        self._labels: TrainingLabels | None = None
        self._predictor: Predictor | None = None

    def callbacks(self) -> dict[str, Callable[[Any], None]]:
        """Return the functions to call by event of Ultralytics' trainers."""
        return {
            "on_pretrain_routine_end": self.begin,
            "on_train_epoch_start": self.begin_epoch,
            "on_model_save": self.save,
            "on_train_end": self.finish,
            "teardown": self.release,
        }

    @property
    def is_unused(self) -> bool:
        """Return whether no training has begun with these callbacks."""
        return not self._has_begun

    def begin(self, trainer: Any) -> None:
        """Match the training with its dataset; raise a BoxmendError if it cannot be mended.

        Leave a further training of the same model as it is.
        """
        if self._is_over:
            if RANK in {-1, 0}:
                LOGGER.warning(
                    f"boxmend: this training is not mended, since the mending into {self.out} was "
                    "for an earlier one; attach again with a new folder to mend it"
                )
            return
        self._has_begun = True
        _ensure_supported(trainer)
        is_resumed = trainer.start_epoch > 0
        if RANK in {-1, 0}:
            ensure_usable(self.out, resume=is_resumed)
        dataset = self._read_dataset(trainer)
        self._labels = TrainingLabels(dataset, trainer.train_loader.dataset)
        if RANK not in {-1, 0}:
            return
        if number := self._labels.num_left_out:
            LOGGER.warning(
                f"boxmend: the training leaves out {number:,} of {len(dataset.images):,} images; "
                "their annotations stay as they are"
            )
        self._predictor = Predictor(trainer, dataset)
        state = read_state(Path(trainer.args.model)) if is_resumed else None
        prescreen = self._prescreen
        if isinstance(prescreen, str | Path):
            prescreen = prescreen_labels(dataset, prescreen)
        self.mender = Mender(
            dataset, self.settings, out=self.out, prescreen=prescreen, resume=is_resumed
        )
        if state is not None:
            self.mender.load_state_dict(state)

    def _read_dataset(self, trainer: Any) -> Dataset:
        """Return the dataset of the training; raise a DataError if it has other classes."""
        given = self._dataset
        if given is None:
            dataset = read_training_split(trainer.args.data, trainer.data)
        else:
            dataset = given if isinstance(given, Dataset) else load(given)
        names = tuple(trainer.data["names"][index] for index in sorted(trainer.data["names"]))
        if names != dataset.label_names:
            raise DataError(
                f"the training has the classes {', '.join(names)}, but the dataset of the Mender "
                f"has {', '.join(dataset.label_names)}; pass the dataset that you train on as "
                "`dataset`"
            )
        return dataset

    def begin_epoch(self, trainer: Any) -> None:
        """Before an epoch, update the annotations if it is time, and exchange them if they changed.

        An epoch that the trainer repeats after an error has no second update.
        """
        if self._is_over:
            return
        labels, mender = self._labels, self.mender
        assert labels is not None
        is_rebuilt = labels.loader_dataset is not trainer.train_loader.dataset
        if is_rebuilt:  # after a lack of memory in the first epoch
            labels.take(trainer.train_loader.dataset)
        is_due = self.schedule.is_due(trainer.epoch, trainer.epochs)
        if mender is not None and is_due and trainer.epoch > mender.last_epoch:
            self._update(trainer, trainer.epoch)
        is_first = trainer.epoch == trainer.start_epoch
        is_resumed = is_first and trainer.epoch > 0
        if is_due or is_rebuilt or is_resumed or (is_first and self._prescreen is not None):
            annotations = _share(trainer, None if mender is None else mender.annotations())
            labels.exchange(annotations, soft=self._use_soft_labels(trainer))
            trainer.train_loader.reset()  # its processes have copies of the old annotations

    def _use_soft_labels(self, trainer: Any) -> bool:
        """Return whether the loss takes soft labels, and prepare it to do so."""
        model = unwrap_model(trainer.model)
        if getattr(model, "criterion", None) is None:
            model.criterion = model.init_criterion()
        settings = self.settings or MenderSettings()
        if not settings.soft_labels or type(model.criterion).__name__ != "v8DetectionLoss":
            return False
        soften_targets(model.criterion)
        return True

    def _update(self, trainer: Any, epoch: int) -> None:
        """Predict the training images, and update the Mender by the detections."""
        assert self.mender is not None
        assert self._predictor is not None
        update_mender(self.mender, epoch, partial(self._predictor.predict, trainer), LOGGER)

    def save(self, trainer: Any) -> None:
        """Write the state of the Mender beside the checkpoints that the trainer has written.

        Between two updates it does not change, so it is written once for each of them.
        """
        if self.mender is None or self._is_over:
            return
        checkpoints = [trainer.last]
        if trainer.best_fitness == trainer.fitness:
            checkpoints.append(trainer.best)
        periodic = trainer.wdir / f"epoch{trainer.epoch}.pt"
        if periodic.is_file():
            checkpoints.append(periodic)
        epoch = self.mender.last_epoch
        outdated = [path for path in checkpoints if self._saved_epochs.get(path) != epoch]
        state = self.mender.state_dict() if outdated else {}
        for path in outdated:
            save_state(state, path)
            self._saved_epochs[path] = epoch

    def finish(self, trainer: Any) -> None:
        """Update the annotations a last time, and finish the run."""
        is_over, self._is_over = self._is_over, True
        if self.mender is None or is_over:
            return
        assert self._predictor is not None
        predict = partial(self._predictor.predict, trainer)
        self.run = finish_run(self.mender, trainer.epoch + 1, predict, LOGGER)

    def release(self, trainer: Any = None) -> None:
        """Release the folder of an unfinished run, to resume it in the same process.

        Recent versions of Ultralytics call this after every training, also after a failed one.
        """
        if self.run is None:
            self.mender = None
            gc.collect()  # a Mender releases its folder when it is destroyed


def prescreen_labels(dataset: Dataset, weights: str | Path) -> ArrayLike:
    """Return the prescreen of a dataset by a ResNet-50 with these weights; log its time.

    Raise a UsageError without these weights.
    """
    LOGGER.info(f"boxmend: judging {len(dataset):,} labels by the features of a ResNet-50 ...")
    start = time.perf_counter()
    try:
        probabilities = judge_labels(dataset, weights=weights)
    except BoxmendError as error:
        raise UsageError(
            f"the labels cannot be prescreened: {error}. A prescreen takes the safetensors file of "
            "a ResNet-50 or `default`; without a prescreen, the detections alone judge the labels"
        ) from error
    LOGGER.info(f"boxmend: judged the labels in {time.perf_counter() - start:.0f} s")
    return probabilities


def _ensure_supported(trainer: Any) -> None:
    """Raise a UsageError for a training with options that Mending does not support."""
    arguments = trainer.args
    if arguments.task != "detect":
        raise UsageError(f"the task is {arguments.task}; boxmend mends only detection")
    problems = [
        f"single_cls={arguments.single_cls}" * bool(arguments.single_cls),
        f"classes={arguments.classes}" * (arguments.classes is not None),
        f"fraction={arguments.fraction}" * (str(arguments.fraction) != "1.0"),
    ]
    if problem := next(filter(None, problems), None):
        raise UsageError(
            f"mending does not support {problem}, since the training then has other annotations "
            "than data.yaml; write the part to train on with boxmend (Dataset.subset, then save)"
        )
    ensure_supported_model(trainer.ema.ema)


def _share(trainer: Any, annotations: MendedAnnotations | None) -> MendedAnnotations:
    """Return the annotations of the first process in all processes."""
    shared = [annotations]
    if trainer.world_size > 1:
        shared = [annotations]
        torch.distributed.broadcast_object_list(shared, src=0)
    assert shared[0] is not None
    return shared[0]
