"""Read the results of earlier versions of `boxmend bench run`, with today's names."""

from collections.abc import Mapping
from typing import Any, Final

from boxmend.runs.settings.renamed import rename_dotted, rename_settings

FORMAT_VERSION: Final = 2
"""Of a line of results. Lines of format 1 differ by names alone."""
RENAMED_KEYS: dict[str, str] = {}
"""The present name of each renamed key of a line by its earlier dotted name, like
"mending.labels.judgment": "judgement". Names of settings are in `runs.settings.renamed`."""
RENAMED_VARIANT = ("~told-", "~known-")
"""The earlier and the present word for known noise rates in the name of a cell."""


def upgrade_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of results in today's format; a line of no known format does not change."""
    if line.get("format", 1) != 1:
        return dict(line)
    upgraded = {**_rename_keys(line), "format": FORMAT_VERSION}
    if isinstance(upgraded.get("cell"), str):
        upgraded["cell"] = upgraded["cell"].replace(*RENAMED_VARIANT)
    for part, rename in (("settings", rename_settings), ("variant", rename_dotted)):
        if isinstance(upgraded.get(part), dict):
            upgraded[part] = rename(upgraded[part])
    return upgraded


def _rename_keys(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in table.items():
        dotted = f"{above}{name}"
        nested = _rename_keys(value, f"{dotted}.") if isinstance(value, dict) else value
        renamed[RENAMED_KEYS.get(dotted, name)] = nested
    return renamed
