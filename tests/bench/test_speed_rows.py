"""The trainings that are timed: the plain recipe sees the same data, and ours stays where it is."""

from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
import torch

from boxmend.bench.speed.growth import time_memory, with_objects
from boxmend.bench.speed.plain import AnnotatedImages, make_data_loader, plain_steps
from boxmend.bench.speed.side_by_side import TimedJob, time_side_by_side, train_for
from tests.bench.timed_trainings import SMALL, drawn_dataset, factory_in

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_plain_recipe_has_the_annotations_that_are_learnt_from(tmp_path: Path) -> None:
    images = AnnotatedImages(drawn_dataset(tmp_path / "data"))
    assert len(images) == 4
    pixels, target = images[0]
    assert pixels.shape == (3, 64, 80)
    assert pixels.dtype == torch.float32
    assert 0 <= float(pixels.min()) < float(pixels.max()) <= 1
    assert target["labels"].tolist() == [1, 2]  # background is 0
    straight = [[4, 4, 40, 40], [30, 10, 70, 60]]
    mirrored = [[40, 4, 76, 40], [10, 10, 50, 60]]  # x1' = 80 - x2, x2' = 80 - x1
    assert target["boxes"].tolist() in (straight, mirrored)
    assert images[1][1]["boxes"].shape == (0, 4)
    assert images[2][1]["labels"].tolist() == []  # a difficult one


def test_boxes_outside_of_an_image_are_clipped_and_empty_ones_left_out(tmp_path: Path) -> None:
    dataset = drawn_dataset(tmp_path / "data")
    dataset.boxes[0] = [-10, 4, 400, 40]
    dataset.boxes[1] = [90, 10, 95, 60]
    _, target = AnnotatedImages(dataset)[0]
    assert target["boxes"].tolist() == [[0, 4, 80, 40]]
    assert target["labels"].tolist() == [1]


@pytest.mark.parametrize("on_device", [False, True])
def test_the_plain_recipe_trains_what_is_not_frozen(on_device: bool, tmp_path: Path) -> None:
    factory = factory_in(tmp_path)
    steps = plain_steps(factory, "64", SMALL.all_counts[0], on_device=on_device)
    network = steps.trainer.network
    assert network.transform.min_size == (64,)  # type: ignore[union-attr]
    assert network.transform.max_size == 64  # type: ignore[union-attr]
    before = {name: one.clone() for name, one in network.named_parameters()}
    steps.run(2)
    moved = {name: not torch.equal(one, before[name]) for name, one in network.named_parameters()}
    assert not any(value for name, value in moved.items() if "backbone.stem" in name)
    assert moved["roi_heads.box_predictor.cls_score.weight"]


def test_the_plain_recipe_follows_a_rate_and_limits_its_gradients(tmp_path: Path) -> None:
    factory = factory_in(tmp_path)
    trainer = plain_steps(factory, "64", SMALL.all_counts[0], on_device=True).trainer
    images = AnnotatedImages(factory.dataset)
    examples = [images[0][0]], [images[0][1]]
    trained = [parameter for parameter in trainer.network.parameters() if parameter.requires_grad]
    before = [one.clone() for one in trained]
    trainer.set_rate(0)
    assert torch.isfinite(trainer.train_on(examples, max_norm=1e-3))
    norms = torch.stack([one.grad.norm() for one in trained if one.grad is not None])
    assert float(norms.norm()) == pytest.approx(1e-3, rel=1e-3)
    assert all(torch.equal(one, was) for one, was in zip(trained, before, strict=True))
    trainer.set_rate(0.1)
    trainer.train_on(examples)
    assert not all(torch.equal(one, was) for one, was in zip(trained, before, strict=True))


def test_the_plain_recipe_is_given_whole_batches_of_all_images(tmp_path: Path) -> None:
    images = AnnotatedImages(drawn_dataset(tmp_path / "data"))
    order = torch.utils.data.SequentialSampler(images)
    loader = make_data_loader(images, order, 3, torch.device("cpu"), 0)
    assert len(loader) == 1  # 4 images: one batch of three, and one image is left over
    ((pictures, targets),) = loader
    assert len(pictures) == len(targets) == 3


def test_workers_ahead_are_let_run_dry_before_a_block(tmp_path: Path) -> None:
    factory = factory_in(tmp_path)
    steps = plain_steps(factory, "64", SMALL.all_counts[0], on_device=True)
    taken: list[int] = []
    whole = steps._batches
    steps._batches = (taken.append(1) or batch for batch in whole)  # type: ignore[func-returns-value]
    steps.num_ahead = 6
    steps.settle()
    assert len(taken) == 6


def test_a_timed_training_is_past_its_warm_up_and_stays_in_one_epoch(tmp_path: Path) -> None:
    steps = factory_in(tmp_path).steps("mend", "64")
    training = steps.training
    assert steps.batch_size == 2
    steps.run(3)
    assert training.loader.num_batches == 2  # so that three steps are more than an epoch
    moment = training.progress()
    assert not moment.is_warm_up
    assert training.step == training.num_steps
    assert training.ledger is not None
    assert training.ledger.num_rows > 0  # flushed
    assert not training.recorder.pending


def test_a_message_of_trainings_is_kept_once(tmp_path: Path) -> None:
    factory = factory_in(tmp_path)
    Path(factory.dataset.images.paths[3]).write_bytes(b"no image")
    for _ in range(2):
        factory.steps("baseline", "64")
    (warning,) = factory.warnings
    assert "3.png" in warning


def test_detectors_are_alike_and_apart(tmp_path: Path) -> None:
    factory = factory_in(tmp_path)
    settings = SMALL.settings("baseline", "64")
    one, other = factory.detector(settings).network, factory.detector(settings).network
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second)
        assert first.data_ptr() != second.data_ptr()
    assert not one.backbone.stem[0].weight.requires_grad  # frozen, though weights are random


def test_drawn_annotations_fill_every_image_and_lie_within(tmp_path: Path) -> None:
    dataset = with_objects(drawn_dataset(tmp_path / "data"), 30)
    assert np.bincount(dataset.image_rows).tolist() == [30] * 4
    assert (dataset.boxes >= 0).all()
    assert (dataset.boxes[:, 2:] <= [80, 64]).all()
    assert (dataset.boxes[:, 2:] > dataset.boxes[:, :2]).all()
    assert set(dataset.labels.tolist()) == {0, 1}


def test_remembering_takes_some_time(tmp_path: Path) -> None:
    assert 0 < time_memory(factory_in(tmp_path), "64") < 1e3


def test_a_job_says_that_it_is_ready_and_then_how_far_it_came(tmp_path: Path) -> None:
    ours, theirs = Pipe()
    ours.send("go")
    job = TimedJob(drawn_dataset(tmp_path / "data"), SMALL, "cpu", "baseline", "64")
    train_for(job, 1e-3, theirs)
    assert ours.recv() == {"ready": True}
    answer = ours.recv()
    assert answer["images"] == 20  # ten steps of two
    assert answer["seconds"] > 0


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    ours, theirs = Pipe()
    job = TimedJob(drawn_dataset(tmp_path / "data"), SMALL, "cpu", "fastest", "64")
    train_for(job, 1e-3, theirs)
    assert ours.recv() == {"error": "KeyError: 'fastest'"}


@pytest.mark.slow
def test_jobs_run_in_processes_of_their_own(tmp_path: Path) -> None:
    factory = factory_in(tmp_path, replace(SMALL, jobs=2, seconds=0.1))
    answer = time_side_by_side(factory, "baseline", "64")
    assert answer["error"] is None
    assert len(answer["each"]) == 2
    assert answer["images_per_second"] == sum(answer["each"]) > 0
    assert time_side_by_side(factory, "fastest", "64")["error"] == "KeyError: 'fastest'"
