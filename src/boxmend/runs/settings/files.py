"""Settings from a file: TOML or JSON, with tables for what is nested; a run's own, too."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from boxmend.data.files.reading import describe_os_error, read_limited
from boxmend.errors import DataError, UsageError
from boxmend.runs.settings.renamed import RENAMED_SETTINGS, rename_settings
from boxmend.runs.settings.training import TrainSettings

Values = dict[tuple[str, ...], Any]
"""Values by their keys from the top: ("mend", "raw_box_share") is mend.raw_box_share."""


def read_settings(path: Path) -> TrainSettings:
    """Read a file of settings; what it does not name has its default."""
    return converted(path, _document(path))


def read_values(path: Path) -> Values:
    """Read what a file sets, and nothing else; a UsageError names the file and the wrong key."""
    document = _document(path)
    settings = converted(path, document)
    return {keys: _at(settings, keys) for keys in _leaves(document)}


def _document(path: Path) -> dict[str, Any]:
    try:
        text = read_limited(path, "settings_bytes").decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: cannot be read as settings ({describe_os_error(error)})"
        ) from error
    try:
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:  # both decoders raise kinds of ValueError
        kind = "TOML" if path.suffix == ".toml" else "JSON (or name it .toml)"
        raise UsageError(f"{path}: is no {kind}: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: holds no table of settings")
    return document


def converted(path: Path | str, document: dict[str, Any], *, strict: bool = True) -> TrainSettings:
    """Make settings of a document; a UsageError names its `path` and the wrong key.

    If not `strict`, texts may stand for numbers, true, false and null.
    """
    _refuse_unknown(path, document, TrainSettings)
    try:
        return msgspec.convert(document, TrainSettings, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        reason, _, place = str(error).partition(" - at `$.")
        key = f"{place.rstrip('`')}: " if place else ""
        raise UsageError(f"{path}: {key}{reason}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def settings_of_run(path: Path, document: Mapping[str, Any]) -> TrainSettings:
    """Make settings of a run's settings.json, which people may edit.

    A DataError names the file and a key whose value is none that the setting can have. Keys that
    there are no longer, as runs of earlier versions have them, are passed over.
    """
    try:
        return msgspec.convert(rename_settings(document), TrainSettings)
    except (msgspec.ValidationError, UsageError, UnicodeEncodeError) as error:
        reason, _, place = str(error).partition(" - at `$.")
        key = f"{place.rstrip('`')}: " if place else ""
        raise DataError(
            f"{path}: {key}{reason}; put the value back that the run was trained with"
        ) from error


def _refuse_unknown(
    path: Path | str, table: Mapping[str, Any], kind: type, prefix: str = ""
) -> None:
    """Refuse keys that no field has, which msgspec would pass over."""
    known = get_type_hints(kind)
    for key, value in table.items():
        if key not in known:
            hint = _hint(key, known, prefix)
            raise UsageError(f"{path}: there is no setting {prefix}{key}{hint}")
        if is_dataclass(known[key]) and isinstance(value, dict):
            _refuse_unknown(path, value, known[key], f"{prefix}{key}.")


def _hint(key: str, known: Iterable[str], prefix: str) -> str:
    """Name the setting that an unknown key may stand for."""
    if present := RENAMED_SETTINGS.get(f"{prefix}{key}"):
        return f" any more; its name is {present} now"
    near = get_close_matches(key, known, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    places: list[tuple[str, ...]] = []
    for key, value in table.items():
        here = (*above, key)
        places += _leaves(value, here) if isinstance(value, dict) else [here]
    return places


def _at(settings: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        settings = getattr(settings, key)
    return settings
