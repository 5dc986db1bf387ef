"""Settings of noise: what is wrong is refused with the text that was given and a right example."""

from typing import Any

import pytest

from boxmend.data.noise import NoiseSettings
from boxmend.errors import UsageError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"labels": "symetric:0.4"},
            r"labels is 'symetric:0.4'; expected symmetric, any, pair, matrix",
        ),
        ({"labels": "symmetric"}, r"labels is 'symmetric'; .* like symmetric:0.4"),
        ({"labels": "symmetric:"}, r"like symmetric:0.4"),
        ({"labels": "symmetric:1.1"}, r"labels is 'symmetric:1.1'; .* from 0 to 1, like symm"),
        ({"labels": "pair:-0.1"}, r"labels is 'pair:-0.1'; .* from 0 to 1, like pair:0.4"),
        ({"labels": "pair:nan"}, r"labels is 'pair:nan'"),
        ({"labels": "pair:x"}, r"labels is 'pair:x'"),
        ({"labels": "matrix:"}, r"labels is 'matrix:'"),
        ({"labels": 0.4}, r"labels is 0.4"),
        ({"boxes": "normal:0.2"}, r"boxes is 'normal:0.2'; expected uniform, gaussian, jitter"),
        ({"boxes": "uniform:1.01"}, r"boxes is 'uniform:1.01'; .* from 0 to 1"),
        ({"boxes": "jitter:2"}, r"boxes is 'jitter:2'; .* from 0 to 1, like jitter:0.25"),
        ({"boxes": "gaussian:-1"}, r"boxes is 'gaussian:-1'; .* from 0 on, like gaussian:0.25"),
        ({"boxes": "gaussian:inf"}, r"boxes is 'gaussian:inf'"),
        ({"missing": 1.5}, r"missing is 1.5; expected a share from 0 to 1, like 0.1"),
        ({"spurious": -0.1}, r"spurious is -0.1"),
        ({"duplicate": float("nan")}, r"duplicate is nan"),
        ({"subset": "0.4"}, r"subset is '0.4'"),
        ({"look_alikes": 2}, r"look_alikes is 2; expected a share"),
        ({"gross_boxes": -0.1}, r"gross_boxes is -0.1; expected a share"),
        ({"gross_noise": "uniform"}, r"gross_noise is 'uniform'; .* like uniform:0.4"),
        ({"missing_order": "large"}, r"missing_order is 'large'; expected random or small"),
        ({"spurious_at": "part,sky"}, r"spurious_at is 'part,sky'; .* like part,clutter"),
        ({"spurious_at": ""}, r"spurious_at is ''"),
        ({"seed": -1}, r"seed is -1; expected a whole number from 0 on"),
        ({"seed": 0.5}, r"seed is 0.5"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        NoiseSettings(**values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"labels": "symmetric:0", "boxes": "uniform:0"},
        {"labels": "pair:1", "boxes": "gaussian:1.5", "missing": 1, "subset": 0, "seed": 2**70},
        {"labels": "matrix:C:\\not\\there.csv", "boxes": "jitter:1"},  # looked at when used
    ],
)
def test_settings_within_their_bounds_are_accepted(values: dict[str, Any]) -> None:
    assert NoiseSettings(**values).labels == values.get("labels")


def test_settings_that_came_later_are_in_the_record_only_where_they_are_set() -> None:
    assert [*NoiseSettings().to_json()] == [
        *("labels", "boxes", "missing", "spurious", "duplicate", "subset", "seed", "clip")
    ]
    settings = NoiseSettings(look_alikes=0.1, look_alike_pairs=("car/van",), spurious_at="part")
    record = settings.to_json()
    assert record["look_alikes"] == 0.1
    assert record["look_alike_pairs"] == ["car/van"]
    assert record["spurious_at"] == "part"
    assert "gross_boxes" not in record
