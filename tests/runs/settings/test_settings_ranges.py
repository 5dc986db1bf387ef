"""What settings refuse, by the name that the option and the file know them by."""

import math
import subprocess
import sys
from typing import Any

import pytest

from boxmend.errors import UsageError
from boxmend.runs.settings import (
    MendSettings,
    Optimisation,
    PublishedSettings,
    TrainSettings,
    parse_image_size,
)

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image_size": "big"}, "image_size is 'big'; expected SHORT/LONG like 600/1000"),
        ({"image_size": "1/2/3"}, "image_size"),
        ({"image_size": "31"}, "from 32 to 8192"),
        ({"epochs": 0}, "epochs is 0; expected 1 or more"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"log_every": 0}, "log_every"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"proposals": 0}, "proposals is 0"),
        ({"pre_nms": 0}, "pre_nms"),
        ({"rois": 0}, "rois"),
        ({"label_noise": 1.5}, "label_noise is 1.5; expected a share from 0 to 1"),
        ({"box_noise": NAN}, "box_noise is nan"),
        ({"warm_up": -0.1}, "warm_up"),
        ({"rpn_low_quality": 2.0}, "rpn_low_quality"),
        ({"difficult": "maybe"}, "difficult is 'maybe'; expected 'ignore' or 'background'"),
        ({"precision": "int4"}, "precision"),
        ({"preset": "best"}, "preset is 'best'; expected 'default' or 'paper'"),
        ({"box_loss": "l2"}, "box_loss"),
        ({"seed": -1}, "seed is -1; expected a number from 0 to 2147483647"),
        ({"seed": 2**31}, "seed"),
    ],
)
def test_a_training_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrainSettings(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"optimizer": "adam"}, "'sgd' or 'adamw'"),
        ({"schedule": "linear"}, "'step' or 'cosine'"),
        ({"lr": -1.0}, "expected a number from 0 on, like 0.02"),
        ({"lr": INF}, "is inf"),
        ({"momentum": 1.1}, "share"),
        ({"weight_decay": NAN}, "is nan"),
        ({"drop_at": 2.0}, "share"),
        ({"warm_up_steps": -1}, "0 or more"),
        ({"max_norm": -1.0}, "like 35"),
        ({"average_decay": 1.5}, "share"),
    ],
)
def test_the_optimisation_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^optimisation\.{next(iter(wrong))} .*{message}"):
        Optimisation(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"raw_box_share": 1.5}, "is 1.5; expected a share from 0 to 1"),
        ({"initial_label_noise": NAN}, "is nan"),
        ({"boxes": "median"}, "is 'median'; expected 'edges' or 'vote' or 'average'"),
        ({"discarded": "lost"}, "is 'lost'"),
        ({"gamma": -1.0}, "is -1.0; expected a number from 0 on, like 0.1"),
        ({"num_candidates": 0}, "is 0; expected 1 or more"),
        ({"num_candidates": 2**63 - 1}, "is 9223372036854775807; expected at most 1,000,000"),
    ],
)
def test_mend_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^mend\.{next(iter(wrong))} {message}"):
        MendSettings(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": 2.0}, "is 2.0; expected a share from 0 to 1"),
        ({"acceptance": -0.1}, "is -0.1"),
        ({"discarded": "lost"}, "is 'lost'; expected 'background' or 'ignore' or 'rpn_only'"),
        ({"fallback": "none"}, "is 'none'; expected 'raw' or 'self'"),
        ({"unreliable": "no"}, "is 'no'; expected 'discard' or 'keep'"),
        ({"granularity": "image"}, "is 'image'; expected 'batch' or 'object'"),
        ({"judged_classes": "none"}, "is 'none'; expected 'all' or 'foreground'"),
        ({"judged_box": "best"}, "is 'best'; expected 'matched' or 'proposal' or 'annotation'"),
        ({"queue_length": 0}, "is 0; expected 1 or more"),
        ({"num_proposals": 0}, "is 0"),
        ({"queue_warm_up_steps": -1}, "is -1; expected 0 or more"),
        ({"fit_threshold": NAN}, "is nan"),
    ],
)
def test_the_published_method_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^published\.{next(iter(wrong))} {message}"):
        PublishedSettings(**wrong)


def test_the_ends_of_ranges_are_taken() -> None:
    assert TrainSettings(label_noise=0.0, box_noise=1.0, warm_up=1.0, seed=2**31 - 1).seed > 0
    assert Optimisation(average_decay=0.0, max_norm=0.0, warm_up_steps=0).average_decay == 0
    assert MendSettings(raw_box_share=1.0, alpha=0.0, num_proposals=1).raw_box_share == 1
    assert PublishedSettings(queue_warm_up_steps=0, queue_length=1).queue_length == 1


def test_the_rate_follows_from_the_batch() -> None:
    assert TrainSettings(batch_size=16).learning_rate == pytest.approx(0.02)
    assert TrainSettings(optimisation=Optimisation(lr=0.3)).learning_rate == 0.3
    assert TrainSettings(batch_size=4).learning_rate == pytest.approx(0.005)


@pytest.mark.parametrize(("text", "sides"), [("600/1000", (600, 1000)), ("320", (None, 320))])
def test_image_sizes_are_read(text: str, sides: tuple[int | None, int]) -> None:
    assert parse_image_size(text) == sides


def test_settings_need_no_torch() -> None:
    code = "import sys, boxmend.runs.settings.files; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
