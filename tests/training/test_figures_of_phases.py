"""Figures of the log where warm-up ends between two lines of it."""

from pathlib import Path

from tests.training.small_runs import drawn, ensure_sound, trained


def test_a_figure_that_begins_after_warm_up_is_averaged_over_the_steps_that_have_it(
    tmp_path: Path,
) -> None:
    dataset = drawn(tmp_path / "images", [(row, (10.0, 10.0, 60.0, 50.0)) for row in range(4)])
    run, log = trained(
        *(dataset, tmp_path / "run"), method="lr", label_noise=0.4, epochs=2, warm_up=0.25
    )
    ensure_sound(run)  # a line for each step: the first of four has no threshold
    assert ["threshold" in line for line in log if "loss" in line] == [False, True, True, True]

    run, log = trained(
        *(dataset, tmp_path / "other"),
        method="lr",
        label_noise=0.4,
        epochs=2,
        warm_up=0.25,
        log_every=100,
    )
    ensure_sound(run)  # a line for each epoch: of two steps in the first one has a threshold
    assert ["threshold" in line for line in log if "loss" in line] == [True, True]
