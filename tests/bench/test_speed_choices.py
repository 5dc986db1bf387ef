"""The options of a speed measurement, and the refused ones."""

from pathlib import Path

import pytest

from boxmend.bench.speed.choices import ROWS, Counts, SpeedChoices
from boxmend.errors import UsageError


def test_lists_are_parted_at_commas_and_nothing_is_measured_twice() -> None:
    choices = SpeedChoices(sizes="320, 600/1000,320", counts="128/300", rows="mend,baseline")
    assert choices.all_sizes == ("320", "600/1000")
    assert choices.all_counts == (Counts(rois=128, proposals=300),)
    assert choices.all_rows == ("mend", "baseline")


def test_few_proposals_come_from_fewer_anchors() -> None:
    few, many = SpeedChoices().all_counts
    assert (few.rois, few.proposals, few.pre_nms) == (128, 300, 1000)
    assert (many.rois, many.proposals, many.pre_nms) == (512, 2000, 2000)


def test_blocks_share_the_steps() -> None:
    assert SpeedChoices(steps=60).block == 12  # 60 / 5
    assert SpeedChoices(steps=14).block == 2  # of 5 blocks; four steps are left out


@pytest.mark.parametrize("row", ROWS)
def test_all_rows_have_the_same_numbers(row: str) -> None:
    choices = SpeedChoices(batch_size=4)
    settings = choices.settings(row, "320", Counts(64, 100))
    assert (settings.rois, settings.proposals, settings.pre_nms) == (64, 100, 1000)
    assert (settings.batch_size, settings.image_size) == (4, "320")
    assert settings.weights == "none"


def test_a_row_is_the_method_and_preset_that_it_is_named_after() -> None:
    choices = SpeedChoices()
    settings = {row: choices.settings(row, "320") for row in ROWS}
    assert {row: one.method for row, one in settings.items()} == {
        "plain": "baseline",
        "plain-on-device": "baseline",
        "baseline": "baseline",
        "mend-paper": "mend-paper",
        "mend": "mend",
        "baseline-eager": "baseline",
        "mend-eager": "mend",
        **{peer: peer for peer in ("co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco")},
    }
    assert settings["mend-paper"].preset == "paper"
    assert not settings["mend-eager"].cuda_graph
    assert settings["mend"].cuda_graph
    assert settings["mend"].label_noise == "auto"
    assert (
        settings["ca-bbc"].label_noise == settings["ca-bbc"].box_noise == 0.4
    )  # as its paper assumes


def test_a_file_of_weights_is_taken_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "default").touch()  # a file, and not what `boxmend train` would download
    settings = SpeedChoices(weights="default").settings("mend", "320")
    assert settings.weights == str(tmp_path / "default")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 4}, "--steps is 4; at least 5"),
        ({"batch_size": 0}, "--batch-size is 0; at least 1"),
        ({"num_images": 0}, "--num-images is 0; at least 1"),
        ({"jobs": -1}, "--jobs is -1; at least 0"),
        ({"workers": -1}, "--workers is -1"),
        ({"workers": 10**6}, "--workers is 1000000"),
        ({"seconds": 0.0}, "--seconds is 0.0"),
        ({"seconds": float("nan")}, "--seconds is nan"),
        ({"sizes": "320,"}, "nothing empty"),
        ({"sizes": "20"}, "image_size is '20'"),
        ({"rows": "baseline,fastest"}, "no 'fastest'; known: plain, "),
        ({"counts": "128"}, "--counts has '128'"),
        ({"counts": "0/300"}, "--counts has '0/300'"),
        ({"counts": "128/99999999"}, "--counts has '128/99999999'"),
        ({"weights": "/nowhere/at/all"}, "--weights /nowhere/at/all: no such file"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SpeedChoices(**changes)  # type: ignore[arg-type]  # wrong on purpose
