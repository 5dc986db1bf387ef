"""Settings that had other names in earlier versions."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from boxmend.runs import folder as runs
from boxmend.runs.settings import MendSettings, Optimisation, TrainSettings, resolve_settings
from boxmend.runs.settings.files import convert_run_settings
from boxmend.runs.settings.renamed import RENAMED_SETTINGS, rename_dotted, rename_settings


def value_at(settings: dict[str, Any], dotted: str) -> object:
    """Return a nested value by its dotted name."""
    value: Any = settings
    for name in dotted.split("."):
        value = value[name]
    return value


def with_earlier_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings with every renamed setting under its earlier name."""
    earlier = {present: old for old, present in RENAMED_SETTINGS.items()}
    return {
        earlier.get(name, name): {
            earlier.get(f"{name}.{key}", f"{name}.{key}").removeprefix(f"{name}."): inner
            for key, inner in value.items()
        }
        if isinstance(value, dict)
        else value
        for name, value in settings.items()
    }


@pytest.mark.parametrize(("old", "present"), RENAMED_SETTINGS.items())
def test_every_present_name_is_a_setting_and_no_earlier_one_is(old: str, present: str) -> None:
    settings = asdict(TrainSettings())
    value_at(settings, present)
    with pytest.raises(KeyError):
        value_at(settings, old)
    assert rename_dotted({old: 1, "epochs": 2}) == {present: 1, "epochs": 2}


def test_present_names_stay_as_they_are() -> None:
    settings = asdict(resolve_settings(TrainSettings()))
    assert rename_settings(settings) == settings


def test_the_settings_of_an_earlier_run_are_read_by_their_present_names(tmp_path: Path) -> None:
    settings = TrainSettings(
        cuda_graph=False,
        optimisation=Optimisation(average_decay=0.5),
        mend=MendSettings(raw_box_share=0.3, vote_min_iou=0.2),
    )
    run = runs.create(tmp_path / "run", asdict(settings), {"data": {}})
    path = run.path / "settings.json"
    earlier = with_earlier_names(asdict(settings))
    assert (earlier["graph"], earlier["mend"]["keep"]) == (False, 0.3)
    path.write_text(json.dumps(earlier))
    assert run.settings() == asdict(settings)
    assert convert_run_settings(path, json.loads(path.read_text())) == settings
    runs.create(run.path, asdict(settings), {"data": {}}, resume=True)  # they are the same
