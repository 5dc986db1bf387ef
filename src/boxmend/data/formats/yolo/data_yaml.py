"""Parse and patch the data.yaml of a YOLO dataset.

Values stay texts: `no` is a name, not False. A patch replaces the changed values in place and keeps
comments, order and all other keys.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.findings import Finding
from boxmend.data.formats.documents import Edit, apply_edits
from boxmend.data.formats.reading import read_file
from boxmend.data.formats.yolo.yaml_nodes import Node, compose
from boxmend.errors import DataError

SPLITS = ("train", "val", "test")
SPLIT_KEYS = {"train": "train", "validation": "val", "val": "val", "test": "test"}
MAX_NAMES = 1_000_000
RESOLVER: Any = yaml.SafeLoader("")  # resolves plain words as other readers do
BOM = b"\xef\xbb\xbf"
PLAIN = re.compile(
    r"[A-Za-z](?:[\w /.-]*\w)?", re.ASCII
)  # needs no quotes, but see `_format_scalar`


@dataclass(frozen=True)
class DataYaml:
    """The values of a data.yaml, and its bytes."""

    path: Path
    data: bytes
    entries: tuple[tuple[Node, Node], ...]  # the top-level keys and values, in order
    root: str | None
    splits: dict[str, tuple[str, ...]]  # split -> its folders and list files, as written
    names: tuple[str, ...]
    has_keypoints: bool
    findings: tuple[Finding, ...]
    read_files: tuple[ReadFile, ...] = ()


def read_yaml(path: Path) -> DataYaml:
    """Read a data.yaml; raise a DataError with the line of an invalid value."""
    file = read_file(path, "settings_bytes")
    return replace(parse_yaml(path, file.content or b""), read_files=(file,))


def parse_yaml(path: Path, data: bytes) -> DataYaml:
    """Parse the bytes of a data.yaml; `path` is for messages."""
    try:
        top = compose(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise DataError(f"{path}{line}: not valid YAML ({reason})") from error
    except (ValueError, OverflowError) as error:  # escapes beyond Unicode, in the Python parser
        raise DataError(f"{path}: not valid YAML ({error})") from error
    if top is None or top.kind != "map":
        raise DataError(f"{path}: expected keys such as train, val and names, found none")
    return _interpret(path, data, top)


@dataclass(frozen=True)
class OutputPaths:
    """The paths to write into a data.yaml."""

    splits: Mapping[str, tuple[str, ...]]  # split -> its folders and list files
    root: str = "."  # `path`: the folder that they start from


def patch_yaml(document: DataYaml, paths: OutputPaths, names: Sequence[str] | None = None) -> bytes:
    """Return the bytes of a data.yaml for an output with these paths.

    Splits without paths become null. `names` must begin with the document's names; further names
    are added. Without differences, the bytes stay the same.
    """
    names = document.names if names is None else tuple(names)
    text = document.data.decode("utf-8-sig")
    values = list(_list_path_values(document, paths))
    edits = list(_make_name_edits(document, text, names))
    if not edits and all(is_unchanged for _, _, is_unchanged in values):
        return document.data
    for value, places, is_unchanged in values:
        if value.is_alias:  # the value of its anchor may have changed
            edits.append(Edit(value.start, value.end, _format_places(places)))
        elif not is_unchanged:
            edits.append(_replace_value(text, value, places))
    mark = BOM if document.data.startswith(BOM) else b""
    patched = mark + b"".join(apply_edits(text.encode(), _to_byte_edits(text, sorted(edits))))
    _verify(document, patched, paths, names)
    return patched


def compose_yaml(paths: OutputPaths, names: Sequence[str]) -> bytes:
    """Return a new data.yaml with the paths of each split and the names by number."""
    lines = [
        f"{split}: {_format_places(places).decode()}" for split, places in paths.splits.items()
    ]
    if not names:
        return "\n".join([*lines, "", "names: {}", ""]).encode()
    listing = [f"  {number}: {_format_scalar(name)}" for number, name in enumerate(names)]
    return "\n".join([*lines, "", "names:", *listing, ""]).encode()


# Reading.


def _interpret(path: Path, data: bytes, top: Node) -> DataYaml:
    values = {key.text: value for key, value in top.pairs if key.kind == "scalar"}
    if "<<" in values:
        raise DataError(
            f"{path}, line {values['<<'].line}: merged keys (<<) are not supported; write them out"
        )
    splits: dict[str, tuple[str, ...]] = {}
    for key, split in SPLIT_KEYS.items():
        if key in values and (places := _read_paths(path, key, values[key])):
            splits[split] = places
    root = _read_paths(path, "path", values["path"]) if "path" in values else ()
    if len(root) > 1:
        raise DataError(f"{path}, line {values['path'].line}: path must be one path")
    names, findings = _read_names(path, values.get("names"), values.get("nc"))
    return DataYaml(
        path=path,
        data=data,
        entries=tuple(top.pairs),
        root=root[0] if root else None,
        splits={split: splits[split] for split in SPLITS if split in splits},
        names=names,
        has_keypoints="kpt_shape" in values,
        findings=findings,
    )


def _read_paths(path: Path, key: str, node: Node) -> tuple[str, ...]:
    """Return the path or paths of a value; none if it is null or empty."""
    items = node.items if node.kind == "list" else (node,)
    for item in items:
        if item.kind != "scalar" or "\0" in item.text:
            raise DataError(f"{path}, line {item.line}: {key} must be a path, or a list of paths")
    return tuple(item.text for item in items if not item.is_null and item.text)


def _read_names(
    path: Path, names: Node | None, nc: Node | None
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    count = _read_count(nc)
    if names is None or names.is_null:
        if count is None:
            raise DataError(f"{path}: has neither names nor nc; add the names of the classes")
        return tuple(map(str, range(count))), ()
    if names.kind == "scalar":
        raise DataError(f"{path}, line {names.line}: names must be a list or a map of names")
    texts = tuple(_list_names(path, names))
    if nc is None or nc.is_null or count == len(texts):
        return texts, ()
    recorded = nc.text if nc.kind == "scalar" else "not a number"
    message = f"line {nc.line}: nc is {recorded[:40]}, but names has {len(texts):,} names"
    return texts, (Finding("malformed", message, str(path)),)


def _read_count(nc: Node | None) -> int | None:
    if nc is None or not (nc.text.isascii() and nc.text.isdigit() and len(nc.text) < 10):
        return None
    return int(nc.text) if int(nc.text) <= MAX_NAMES else None


def _list_names(path: Path, names: Node) -> Iterator[str]:
    nodes: Sequence[Node] = names.items
    if names.kind == "map":
        numbered: dict[str, Node] = {}
        for key, value in names.pairs:
            if numbered.setdefault(key.text, value) is not value:
                raise DataError(f"{path}, line {key.line}: names has {key.text[:40]!r} twice")
        missing = [n for n in range(len(numbered)) if str(n) not in numbered]
        if missing:
            raise DataError(
                f"{path}, line {names.line}: names has no number {missing[0]}; number the names "
                f"from 0 to {len(numbered) - 1} without a gap"
            )
        nodes = [numbered[str(n)] for n in range(len(numbered))]
    for number, node in enumerate(nodes):
        is_absent = node.is_null and not node.text  # '' in quotes is a name, which COCO may have
        if node.kind != "scalar" or is_absent:
            raise DataError(f"{path}, line {node.line}: name {number} must be a text")
        yield node.text


# Patching; positions are in characters until `_to_byte_edits`.


def _list_path_values(
    document: DataYaml, paths: OutputPaths
) -> Iterator[tuple[Node, tuple[str, ...], bool]]:
    """Yield each path value, its new paths, and whether it already has them."""
    root = () if paths.root == "." else (paths.root,)
    for key, value in document.entries:
        split = SPLIT_KEYS.get(key.text)
        if key.kind == "scalar" and (key.text == "path" or split in document.splits):
            written = _read_paths(document.path, key.text, value)
            current = tuple(posixpath.normpath(path) for path in written)
            if split is None:  # for every reader, null means the folder of the data.yaml
                yield value, root, current in (root, (paths.root,))
            else:
                places = paths.splits.get(split, ())
                yield value, places, current in ((), places)


def _replace_value(text: str, value: Node, places: tuple[str, ...]) -> Edit:
    """Return the edit that replaces a value by paths; a list stays a list."""
    if value.kind == "list" and places:
        first, last = value.items[0], value.items[-1]
        between = ", "
        if not value.is_flow:
            dash = text.rindex("-", 0, first.start)
            between = _find_newline(text) + " " * (dash - text.rfind("\n", 0, dash) - 1) + "- "
        return Edit(first.start, last.end, between.join(map(_format_scalar, places)).encode())
    anchor = f"&{value.anchor} ".encode() if value.anchor else b""
    if value.kind == "list":
        return Edit(value.start, value.end, b" " + anchor + b"[]")
    new = anchor + _format_places(places)
    if text[value.end - 1] == "\n":  # a block scalar includes its last line end
        new += b"\n"
    return Edit(value.start, value.end, new)


def _to_byte_edits(text: str, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Convert edits from positions in `text` to positions in its bytes."""
    for edit in edits:
        start = len(text[: edit.start].encode())
        yield Edit(start, start + len(text[edit.start : edit.end].encode()), edit.new)


def _format_places(places: tuple[str, ...]) -> bytes:
    if len(places) > 1:
        return f"[{', '.join(map(_format_scalar, places))}]".encode()
    return _format_scalar(places[0]).encode() if places else b"null"


def _make_name_edits(document: DataYaml, text: str, names: tuple[str, ...]) -> Iterator[Edit]:
    """Yield the edits that append names in the style of the existing ones and update nc."""
    if names == document.names:
        return
    values = {key.text: value for key, value in document.entries}
    node, nc = values.get("names"), values.get("nc")
    numbered = list(enumerate(names))
    if node is not None and not node.is_null and not node.is_alias:
        yield _append_names(node, text, numbered[len(document.names) :])
    else:
        mapping = "{" + ", ".join(f"{n}: {_format_scalar(name)}" for n, name in numbered) + "}"
        if node is not None:
            yield Edit(node.start, node.end, f" {mapping}".encode())
        else:
            end = _find_line_end(text, document.entries[-1][1].end)
            yield Edit(end, end, f"{_find_newline(text)}names: {mapping}".encode())
    if nc is not None and nc.kind == "scalar" and not nc.is_null:
        yield Edit(nc.start, nc.end, str(len(names)).encode())


def _append_names(node: Node, text: str, numbered: Sequence[tuple[int, str]]) -> Edit:
    entries = [
        f"{n}: {_format_scalar(name)}" if node.kind == "map" else _format_scalar(name)
        for n, name in numbered
    ]
    if not node.items:
        return Edit(node.end - 1, node.end - 1, ", ".join(entries).encode())
    end = node.items[-1].end
    if node.is_flow:
        return Edit(end, end, "".join(f", {entry}" for entry in entries).encode())
    first = node.items[0].start
    if node.kind == "list":
        first = text.rindex("-", 0, first)
        entries = [f"- {entry}" for entry in entries]
    indent = _find_newline(text) + " " * (first - text.rfind("\n", 0, first) - 1)
    end = _find_line_end(text, end)
    return Edit(end, end, "".join(indent + entry for entry in entries).encode())


def _find_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _find_line_end(text: str, position: int) -> int:
    """Return the end of the line with `position`, after any comment."""
    return position + len(text[position:].split("\n", 1)[0].rstrip("\r"))


def _verify(document: DataYaml, patched: bytes, paths: OutputPaths, names: tuple[str, ...]) -> None:
    """Raise a DataError if the patched document has wrong values, as YAML has many forms."""
    try:
        result = parse_yaml(document.path, patched)
    except DataError:
        result = None
    expected = {split: paths.splits[split] for split in document.splits if split in paths.splits}
    if result is None or result.names != names or not _has_paths(result, expected, paths.root):
        raise DataError(
            f"{document.path}: has an unusual form that cannot be changed in place; write path, "
            "train, val, test, nc and names as plain values and lists"
        )


def _has_paths(document: DataYaml, expected: Mapping[str, tuple[str, ...]], root: str) -> bool:
    splits = {
        split: tuple(posixpath.normpath(place) for place in places)
        for split, places in document.splits.items()
    }
    return splits == expected and posixpath.normpath(document.root or ".") == root


def _format_scalar(text: str) -> str:
    """Return a text as YAML: plain if that reads back as a text, else in double quotes."""
    if PLAIN.fullmatch(text):
        tag = RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
        if tag == "tag:yaml.org,2002:str":
            return text
    dumped: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf"))
    return dumped.strip("\n")
