"""Update the tables of docs/settings.md.

    python tools/settings_page.py

A table is between `<!-- NAME -->` and `<!-- end -->`. Defaults come from the settings classes, and
descriptions from the docstrings below their fields.
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
from boxmend.runs.settings.renamed import RENAMED_SETTINGS

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
MAX_NUMBER_LENGTH = 10  # characters; longer numbers, such as a third, are rounded
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


def update_tables(text: str) -> str:
    """Return the page with all its tables updated."""
    for name, (kind, prefix) in KINDS.items():
        text = _replace_table(text, name, _settings_table(kind, prefix))
    text = _replace_table(text, "presets", _presets_table())
    return _replace_table(text, "renamed", _renamed_table())


def _replace_table(text: str, name: str, table: list[str]) -> str:
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if len(place.findall(text)) != 1:
        raise SystemExit(f"the page needs one place for the table {name}")
    body = "\n".join(["", *table, "", ""])
    return place.sub(lambda match: match[1] + body + match[2], text)


def _settings_table(kind: type[Any], prefix: str) -> list[str]:
    descriptions, defaults = _field_docstrings(kind), kind()
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for field in fields(kind):
        value = getattr(defaults, field.name)
        if not is_dataclass(value):
            text = descriptions[field.name].replace("|", "\\|")
            rows.append(f"| `{prefix}{field.name}` | {_format_value(value)} | {text} |")
    return rows


def _presets_table() -> list[str]:
    default, paper = (asdict(PRESETS[name]) for name in ("default", "paper"))
    nested = {field.name for field in fields(Optimisation)}
    rows = ["| setting | default | paper |", "|---|---|---|"]
    for name, value in default.items():
        dotted = f"optimisation.{name}" if name in nested else name
        rows.append(f"| `{dotted}` | {_format_value(value)} | {_format_value(paper[name])} |")
    return rows


def _renamed_table() -> list[str]:
    rows = [f"| `{earlier}` | `{name}` |" for earlier, name in RENAMED_SETTINGS.items()]
    return ["| earlier name | name |", "|---|---|", *rows]


def _field_docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, in one line."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    docstrings: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name)
            docstrings[field.target.id] = " ".join(ast.literal_eval(below.value).split())
    return docstrings


def _format_value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    is_long = isinstance(value, float) and len(str(value)) > MAX_NUMBER_LENGTH
    return f"`{value:.4g}`" if is_long else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(update_tables(PAGE.read_text()))
