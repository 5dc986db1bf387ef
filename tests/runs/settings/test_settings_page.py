"""The page about the settings says what the code says."""

import re
import runpy
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from boxmend.cli.train import PANELS
from boxmend.runs.settings import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    MendSettings,
    NoteRcnnSettings,
    OaMilSettings,
    Optimisation,
    PublishedSettings,
    TrainSettings,
)
from boxmend.runs.settings.files import read_settings
from tests import ROOT

PAGE = (ROOT / "docs" / "settings.md").read_text()


def test_the_tables_are_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "settings_page.py"))
    assert tool["update_tables"](PAGE) == PAGE  # if not: python tools/settings_page.py
    assert tool["update_tables"](PAGE.replace("`0.998`", "`0.9`")) == PAGE


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (TrainSettings, ""),
        (Optimisation, "optimisation."),
        (MendSettings, "mend."),
        (PublishedSettings, "published."),
        (CoTeachingSettings, "co_teaching."),
        (NoteRcnnSettings, "note_rcnn."),
        (CaBbcSettings, "ca_bbc."),
        (OaMilSettings, "oa_mil."),
        (DiscoSettings, "disco."),
    ],
)
def test_every_setting_has_a_row_with_words(kind: type, prefix: str) -> None:
    nested = {field.name for field in fields(TrainSettings) if is_dataclass(field.default_factory)}
    tables = PAGE[PAGE.index("## The training") :]
    for field in fields(kind):
        if field.name not in nested or prefix:
            row = re.search(rf"^\| `{prefix}{field.name}` \| .* \| (.+) \|$", tables, re.MULTILINE)
            assert row
            assert len(row[1]) > 10


def test_the_example_file_can_be_read(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    path = tmp_path / "example.toml"
    path.write_text(example[1])
    settings = read_settings(path)
    assert (settings.mend.raw_box_share, settings.optimisation.lr) == (0.4, 0.01)


def test_options_in_the_text_exist() -> None:
    known = {name for names in PANELS.values() for name in names}
    for option in re.findall(r"`--([a-z.-]+)", PAGE):
        assert option in known or f"{option.split('.')[0]}.*" in known or option == "help"
