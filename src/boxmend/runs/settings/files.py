"""Read settings from TOML and JSON files, and from the folder of a run."""

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
"""Values by their path of keys: ("mend", "raw_box_share") is mend.raw_box_share."""


def read_settings(path: Path) -> TrainSettings:
    """Read a settings file; settings that it does not name have their defaults."""
    return convert_settings(path, _read_document(path))


def read_values(path: Path) -> Values:
    """Read only the values that a file sets; a UsageError names the file and the wrong key."""
    document = _read_document(path)
    settings = convert_settings(path, document)
    return {keys: _value_at(settings, keys) for keys in _key_paths(document)}


def _read_document(path: Path) -> dict[str, Any]:
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
        raise UsageError(f"{path}: is not {kind}: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: is not a table of settings")
    return document


def convert_settings(
    path: Path | str, document: dict[str, Any], *, strict: bool = True
) -> TrainSettings:
    """Convert a document to settings; a UsageError names its `path` and the wrong key.

    If not `strict`, strings are accepted for numbers, true, false and null.
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


def convert_run_settings(path: Path, document: Mapping[str, Any]) -> TrainSettings:
    """Convert the settings.json of a run, which people may edit.

    A DataError names the file and the key of an invalid value. Renamed settings of earlier versions
    are read by their present names, and removed ones are ignored.
    """
    try:
        return msgspec.convert(rename_settings(document), TrainSettings)
    except (msgspec.ValidationError, UsageError, UnicodeEncodeError) as error:
        reason, _, place = str(error).partition(" - at `$.")
        key = f"{place.rstrip('`')}: " if place else ""
        raise DataError(
            f"{path}: {key}{reason}; restore the value that the run was trained with"
        ) from error


def _refuse_unknown(
    path: Path | str, table: Mapping[str, Any], kind: type, prefix: str = ""
) -> None:
    """Refuse unknown keys, which msgspec would ignore."""
    known = get_type_hints(kind)
    for key, value in table.items():
        if key not in known:
            hint = _hint(key, known, prefix)
            raise UsageError(f"{path}: there is no setting {prefix}{key}{hint}")
        if is_dataclass(known[key]) and isinstance(value, dict):
            _refuse_unknown(path, value, known[key], f"{prefix}{key}.")


def _hint(key: str, known: Iterable[str], prefix: str) -> str:
    """Return the setting that an unknown key may mean, as the end of a message."""
    if present := RENAMED_SETTINGS.get(f"{prefix}{key}"):
        return f" any more; its name is {present} now"
    matches = get_close_matches(key, known, n=1)
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""


def _key_paths(table: Mapping[str, Any], parents: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for key, value in table.items():
        path = (*parents, key)
        paths += _key_paths(value, path) if isinstance(value, dict) else [path]
    return paths


def _value_at(settings: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        settings = getattr(settings, key)
    return settings
