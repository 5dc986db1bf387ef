"""When a training is mended, what its log says, and annotations for other processes."""

import copy
import logging
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import boxmend
from boxmend.auditing.ledgers import audit_ledger
from boxmend.errors import DataError, UsageError
from boxmend.integrations.checkpoints import read_state, save_state
from boxmend.integrations.evaluating import evaluate_mode
from boxmend.integrations.schedule import UpdateSchedule
from boxmend.integrations.updating import finish_run, update_mender
from boxmend.runs.opening import open_run_with_history
from tests.integrations.noisy_toys import NoisyToys, draw_noisy_toys

LOGGER = logging.getLogger("test")


@pytest.fixture
def toys(tmp_path: Path) -> NoisyToys:
    return draw_noisy_toys(tmp_path)


def test_the_schedule_is_a_share_of_the_epochs_and_then_regular() -> None:
    schedule = UpdateSchedule(warm_up=0.2, every=3)
    assert [epoch for epoch in range(20) if schedule.is_due(epoch, 20)] == [4, 7, 10, 13, 16, 19]
    assert not UpdateSchedule(warm_up=0, every=1).is_due(0, 9)
    with pytest.raises(UsageError, match=r"warm_up is 1\.0; expected a share"):
        UpdateSchedule(warm_up=1.0)
    with pytest.raises(UsageError, match=r"warm_up is -0\.1; expected a share"):
        UpdateSchedule(warm_up=-0.1)
    with pytest.raises(UsageError, match="every is 0; expected a number"):
        UpdateSchedule(every=0)


def test_a_run_is_finished_after_a_last_update(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    for epoch in range(1, 4):
        update_mender(mender, epoch, toys.detect, LOGGER)
    run = finish_run(mender, 4, toys.detect, LOGGER)
    assert run is not None
    assert (run.is_finished, mender.num_updates) == (True, 4)
    assert caplog.messages[0].startswith("boxmend: epoch 1: still in warm-up (")
    assert " labels changed, 1" in caplog.messages[2]


def test_an_update_without_detections_says_so_in_the_log(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    nothing = boxmend.Predictions([], np.zeros((0, 4)), [], [])
    with pytest.warns(UserWarning, match="there is no detection"):
        update_mender(mender, 1, lambda: nothing, LOGGER)
    assert "still in warm-up" in caplog.messages[0]
    assert "there is no detection, so this update changes nothing" in caplog.messages[0]


def test_an_epoch_has_one_update(toys: NoisyToys, tmp_path: Path) -> None:
    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    update_mender(mender, 1, toys.detect, LOGGER)
    finish_run(mender, 1, toys.detect, LOGGER)
    assert toys.num_calls == 1


def test_errors_of_predictions_are_logged(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> boxmend.Predictions:
        raise DataError("the boxes do not fit")

    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    assert finish_run(mender, 3, fail, LOGGER) is None
    assert caplog.messages == [
        "boxmend: epoch 3: no update, and the training continues with the annotations that it "
        "has: the boxes do not fit",
        "boxmend: no update succeeded, so there are no mended annotations",
    ]


def test_a_prediction_that_fails_does_not_end_the_training(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> boxmend.Predictions:
        raise RuntimeError("CUDA out of memory")

    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    update_mender(mender, 1, fail, LOGGER)
    (record,) = caplog.records
    assert record.getMessage().endswith("annotations that it has: RuntimeError: CUDA out of memory")
    assert record.exc_info  # where it comes from
    update_mender(mender, 2, toys.detect, LOGGER)
    assert mender.num_updates == 1


def test_a_run_that_cannot_be_finished_is_logged(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    update_mender(mender, 1, toys.detect, LOGGER)
    shutil.rmtree(tmp_path / "run")
    assert finish_run(mender, 1, toys.detect, LOGGER) is None
    assert caplog.messages[-1].startswith("boxmend: the run is not finished: ")


def test_a_training_of_warm_up_alone_says_that_nothing_changes(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mender = boxmend.Mender(toys.noisy, out=tmp_path / "run")
    update_mender(mender, 1, toys.detect, LOGGER)
    run = finish_run(mender, 2, toys.detect, LOGGER)
    assert run is not None
    assert mender.num_judging_updates == 0
    assert caplog.messages[-1] == (
        f"boxmend: {run.path} changes no annotation, since all of its 2 updates were in warm-up; "
        "train for more epochs, or update more often"
    )
    with pytest.raises(DataError, match="or for more epochs if all updates were in warm-up"):
        audit_ledger(open_run_with_history(run.path, toys.noisy))


def test_annotations_can_be_pickled_and_copied_without_their_mender(
    toys: NoisyToys, tmp_path: Path
) -> None:
    annotations = boxmend.Mender(toys.noisy, out=tmp_path / "run").annotations()
    for again in (pickle.loads(pickle.dumps(annotations)), copy.deepcopy(annotations)):
        np.testing.assert_array_equal(again.soft_labels, annotations.soft_labels)
        np.testing.assert_array_equal(again.boxes, annotations.boxes)
        np.testing.assert_array_equal(again.rows_of_image(1), annotations.rows_of_image(1))


def test_a_checkpoint_that_is_a_folder_has_the_state_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-12"
    with pytest.raises(DataError, match="so the training of checkpoint-12 was not mended"):
        read_state(folder)
    folder.mkdir()
    save_state({"epoch": 3}, folder)
    assert [path.name for path in folder.iterdir()] == ["mender.npz"]
    assert read_state(folder) == {"epoch": 3}


def test_each_part_of_a_model_gets_its_mode_back() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.BatchNorm1d(1)))
    model[1].eval()
    with evaluate_mode(model):
        assert not any(part.training for part in model.modules())
    assert [part.training for part in model.modules()] == [True, True, False, False]
