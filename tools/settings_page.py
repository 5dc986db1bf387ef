"""Bring the tables of docs/settings.md up to date with the settings.

    python tools/settings_page.py

A table stands between `<!-- NAME -->` and `<!-- end -->`; defaults come from the dataclasses and
the words from the docstrings below their fields.
"""

import ast
import inspect
import re
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

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
from boxmend.runs.settings.presets import PRESETS

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
LONG = 10  # characters of a fraction that is no round number, like a third
KINDS: dict[str, tuple[type[Any], str]] = {
    "training": (TrainSettings, ""),
    "optimisation": (Optimisation, "optimisation."),
    "mend": (MendSettings, "mend."),
    "published": (PublishedSettings, "published."),
    "co-teaching": (CoTeachingSettings, "co_teaching."),
    "note-rcnn": (NoteRcnnSettings, "note_rcnn."),
    "ca-bbc": (CaBbcSettings, "ca_bbc."),
    "oa-mil": (OaMilSettings, "oa_mil."),
    "disco": (DiscoSettings, "disco."),
}


def updated(text: str) -> str:
    """The page with every table as it should be."""
    for name, (kind, prefix) in KINDS.items():
        text = _with_table(text, name, _settings_table(kind, prefix))
    return _with_table(text, "presets", _presets_table())


def _with_table(text: str, name: str, table: list[str]) -> str:
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if len(place.findall(text)) != 1:
        raise SystemExit(f"the page needs one place for the table {name}")
    body = "\n".join(["", *table, "", ""])
    return place.sub(lambda found: found[1] + body + found[2], text)


def _settings_table(kind: type[Any], prefix: str) -> list[str]:
    words, defaults = _docstrings(kind), kind()
    rows = ["| setting | default | what and why |", "|---|---|---|"]
    for one in fields(kind):
        value = getattr(defaults, one.name)
        if not is_dataclass(value):
            text = words[one.name].replace("|", "\\|")
            rows.append(f"| `{prefix}{one.name}` | {_shown(value)} | {text} |")
    return rows


def _presets_table() -> list[str]:
    default, paper = (asdict(PRESETS[name]) for name in ("default", "paper"))
    nested = {one.name for one in fields(Optimisation)}
    rows = ["| setting | default | paper |", "|---|---|---|"]
    for name, value in default.items():
        place = f"optimisation.{name}" if name in nested else name
        rows.append(f"| `{place}` | {_shown(value)} | {_shown(paper[name])} |")
    return rows


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """The string below each field of a class, in one line."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    words: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name)
            words[field.target.id] = " ".join(ast.literal_eval(below.value).split())
    return words


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    is_long = isinstance(value, float) and len(str(value)) > LONG
    return f"`{value:.4g}`" if is_long else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
