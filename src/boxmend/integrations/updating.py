"""Updates of a Mender between the epochs of a training, with a line in its log for each."""

import time
from collections.abc import Callable
from logging import Logger

from boxmend.auditing.predictions import Predictions
from boxmend.errors import BoxmendError
from boxmend.repair.mender import Mender, MenderUpdate
from boxmend.repair.trained_runs import TrainedRun


def update_mender(
    mender: Mender, epoch: int, predict: Callable[[], Predictions], logger: Logger
) -> None:
    """Update a Mender by the detections that `predict` returns.

    An error is logged and leaves the annotations as they are, since the training can go on. One
    that is no BoxmendError, such as a lack of memory in the prediction, is logged with its
    traceback.
    """
    start = time.perf_counter()
    mender.annotations()  # those of the trainer until now
    try:
        update = mender.update(epoch, predict())
    except Exception as error:
        is_expected = isinstance(error, BoxmendError)
        reason = str(error) if is_expected else f"{type(error).__name__}: {error}"
        logger.error(
            f"boxmend: epoch {epoch}: no update, and the training continues with the "
            f"annotations that it has: {reason}",
            exc_info=not is_expected,
        )
        return
    logger.info(_describe_update(update, time.perf_counter() - start))


def finish_run(
    mender: Mender, epoch: int, predict: Callable[[], Predictions], logger: Logger
) -> TrainedRun | None:
    """Update a Mender a last time, after `epoch` epochs, and finish its run.

    Return None if no update has succeeded, or if the run cannot be written; the log says why.
    """
    if epoch > mender.last_epoch:
        update_mender(mender, epoch, predict, logger)
    if not mender.num_updates:
        logger.error("boxmend: no update succeeded, so there are no mended annotations")
        return None
    try:
        run = mender.finish()
    except (BoxmendError, OSError) as error:
        logger.error(f"boxmend: the run is not finished: {error}")
        return None
    if mender.num_judging_updates:
        logger.info(f"boxmend: {run.path} has the mended annotations: boxmend report {run.path}")
    else:
        logger.warning(
            f"boxmend: {run.path} changes no annotation, since all of its {mender.num_updates} "
            "updates were in warm-up; train for more epochs, or update more often"
        )
    return run


def _describe_update(update: MenderUpdate, seconds: float) -> str:
    """Return a line about an update for the log."""
    if update.is_warm_up:
        notes = "".join(f"; {note}" for note in update.notes)
        return f"boxmend: epoch {update.epoch}: still in warm-up ({seconds:.1f} s){notes}"
    return (
        f"boxmend: epoch {update.epoch}: {update.num_relabelled:,} labels changed, "
        f"{update.num_moved:,} boxes moved, {update.num_spurious:,} spurious, "
        f"{update.num_missing:,} missing ({seconds:.1f} s)"
    )
