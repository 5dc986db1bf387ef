"""The data.yaml of a YOLO dataset: what it says, and how its paths and names are patched.

Values are taken as they are written: `no` is a name, not False. A patch replaces the values that
must differ, in their places; comments, order and all other keys stay as they are.
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
RESOLVER: Any = yaml.SafeLoader("")  # tells what a plain word means to other readers
BOM = b"\xef\xbb\xbf"
PLAIN = re.compile(r"[A-Za-z](?:[\w /.-]*\w)?", re.ASCII)  # needs no quotes, but see `_scalar`


@dataclass(frozen=True)
class DataYaml:
    """What a data.yaml says, and its bytes."""

    path: Path
    data: bytes
    entries: tuple[tuple[Node, Node], ...]  # the keys and values at the top, in order
    root: str | None
    splits: dict[str, tuple[str, ...]]  # split -> its folders and list files, as written
    names: tuple[str, ...]
    has_keypoints: bool
    findings: tuple[Finding, ...]
    read_files: tuple[ReadFile, ...] = ()


def read_yaml(path: Path) -> DataYaml:
    """Read a data.yaml; a DataError names the line of what cannot be understood."""
    file = read_file(path, "settings_bytes")
    return replace(parse_yaml(path, file.content or b""), read_files=(file,))


def parse_yaml(path: Path, data: bytes) -> DataYaml:
    """Understand the bytes of a data.yaml; `path` is for messages."""
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
    return _understood(path, data, top)


def patched_yaml(
    document: DataYaml, folders: Mapping[str, str], names: Sequence[str] | None = None
) -> bytes:
    """The bytes of a data.yaml for an output with these folders: split -> folder.

    Splits that are not in `folders` become null. `names` must begin with the document's own; what
    comes after them is added. Where nothing differs the bytes are the document's.
    """
    names = document.names if names is None else tuple(names)
    text = document.data.decode("utf-8-sig")
    paths = list(_path_values(document, folders))
    edits = list(_name_edits(document, text, names))
    if not edits and all(says_so for _, _, says_so in paths):
        return document.data
    for value, wanted, says_so in paths:
        if value.is_alias:  # what it stands for may just have changed
            edits.append(Edit(value.start, value.end, _folder(wanted)))
        elif not says_so:
            edits.append(_replaced(text, value, wanted))
    mark = BOM if document.data.startswith(BOM) else b""
    patched = mark + b"".join(apply_edits(text.encode(), _in_bytes(text, sorted(edits))))
    _verify(document, patched, folders, names)
    return patched


def composed_yaml(folders: Mapping[str, str], names: Sequence[str]) -> bytes:
    """A new data.yaml: split -> folder, and the names by number."""
    lines = [f"{split}: {_scalar(folder)}" for split, folder in folders.items()]
    if not names:
        return "\n".join([*lines, "", "names: {}", ""]).encode()
    listing = [f"  {number}: {_scalar(name)}" for number, name in enumerate(names)]
    return "\n".join([*lines, "", "names:", *listing, ""]).encode()


# Reading


def _understood(path: Path, data: bytes, top: Node) -> DataYaml:
    values = {key.text: value for key, value in top.pairs if key.kind == "scalar"}
    if "<<" in values:
        raise DataError(f"{path}, line {values['<<'].line}: write merged keys (<<) out")
    splits: dict[str, tuple[str, ...]] = {}
    for key, split in SPLIT_KEYS.items():
        if key in values and (places := _texts(path, key, values[key])):
            splits[split] = places
    root = _texts(path, "path", values["path"]) if "path" in values else ()
    if len(root) > 1:
        raise DataError(f"{path}, line {values['path'].line}: path must be one path")
    names, findings = _names(path, values.get("names"), values.get("nc"))
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


def _texts(path: Path, key: str, node: Node) -> tuple[str, ...]:
    """A path, or a list of paths; none where the value is null or empty."""
    nodes = node.items if node.kind == "list" else (node,)
    for one in nodes:
        if one.kind != "scalar" or "\0" in one.text:
            raise DataError(f"{path}, line {one.line}: {key} must be a path, or a list of paths")
    return tuple(one.text for one in nodes if not one.is_null and one.text)


def _names(
    path: Path, names: Node | None, nc: Node | None
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    count = _count(nc)
    if names is None or names.is_null:
        if count is None:
            raise DataError(f"{path}: neither names nor nc; list the names of the classes")
        return tuple(map(str, range(count))), ()
    if names.kind == "scalar":
        raise DataError(f"{path}, line {names.line}: names must be a list or a map of names")
    listed = tuple(_listed_names(path, names))
    if nc is None or nc.is_null or count == len(listed):
        return listed, ()
    said = nc.text if nc.kind == "scalar" else "no number"
    message = f"line {nc.line}: nc is {said[:40]}, but names has {len(listed):,} names"
    return listed, (Finding("malformed", message, str(path)),)


def _count(nc: Node | None) -> int | None:
    if nc is None or not (nc.text.isascii() and nc.text.isdigit() and len(nc.text) < 10):
        return None
    return int(nc.text) if int(nc.text) <= MAX_NAMES else None


def _listed_names(path: Path, names: Node) -> Iterator[str]:
    nodes: Sequence[Node] = names.items
    if names.kind == "map":
        numbered: dict[str, Node] = {}
        for key, value in names.pairs:
            if numbered.setdefault(key.text, value) is not value:
                raise DataError(f"{path}, line {key.line}: names has {key.text[:40]!r} twice")
        missing = [n for n in range(len(numbered)) if str(n) not in numbered]
        if missing:
            raise DataError(
                f"{path}, line {names.line}: names has no {missing[0]}; number them from 0 to "
                f"{len(numbered) - 1} without a gap"
            )
        nodes = [numbered[str(n)] for n in range(len(numbered))]
    for number, node in enumerate(nodes):
        is_absent = node.is_null and not node.text  # '' in quotes is a name, as COCO may have it
        if node.kind != "scalar" or is_absent:
            raise DataError(f"{path}, line {node.line}: name {number} must be a text")
        yield node.text


# Patching: edits are in characters until they are made


def _path_values(
    document: DataYaml, folders: Mapping[str, str]
) -> Iterator[tuple[Node, str | None, bool]]:
    """Every value among the paths, what it is to say, and whether it says so already."""
    for key, value in document.entries:
        split = SPLIT_KEYS.get(key.text)
        if key.kind == "scalar" and (key.text == "path" or split in document.splits):
            said = [posixpath.normpath(one) for one in _texts(document.path, key.text, value)]
            if split is None:  # null means the folder of the data.yaml, to every reader
                yield value, None, said in ([], ["."])
            else:
                yield value, folders.get(split), said in ([], [folders.get(split)])


def _replaced(text: str, value: Node, wanted: str | None) -> Edit:
    """The value replaced; a list stays a list."""
    if value.kind == "list" and wanted is not None:
        return Edit(value.items[0].start, value.items[-1].end, _folder(wanted))
    anchor = f"&{value.anchor} ".encode() if value.anchor else b""
    if value.kind == "list":
        return Edit(value.start, value.end, b" " + anchor + b"[]")
    new = anchor + _folder(wanted)
    if text[value.end - 1] == "\n":  # the end of a block scalar is that of its last line
        new += b"\n"
    return Edit(value.start, value.end, new)


def _in_bytes(text: str, edits: Sequence[Edit]) -> Iterator[Edit]:
    """The edits, from places in `text` to places in its bytes."""
    for edit in edits:
        start = len(text[: edit.start].encode())
        yield Edit(start, start + len(text[edit.start : edit.end].encode()), edit.new)


def _folder(wanted: str | None) -> bytes:
    return _scalar(wanted).encode() if wanted else b"null"


def _name_edits(document: DataYaml, text: str, names: tuple[str, ...]) -> Iterator[Edit]:
    """Append names in the style of those that are there, and count them in nc."""
    if names == document.names:
        return
    values = {key.text: value for key, value in document.entries}
    node, nc = values.get("names"), values.get("nc")
    numbered = list(enumerate(names))
    if node is not None and not node.is_null and not node.is_alias:
        yield _appended(node, text, numbered[len(document.names) :])
    else:
        whole = "{" + ", ".join(f"{n}: {_scalar(name)}" for n, name in numbered) + "}"
        if node is not None:
            yield Edit(node.start, node.end, f" {whole}".encode())
        else:
            end = _line_end(text, document.entries[-1][1].end)
            yield Edit(end, end, f"{_newline(text)}names: {whole}".encode())
    if nc is not None and nc.kind == "scalar" and not nc.is_null:
        yield Edit(nc.start, nc.end, str(len(names)).encode())


def _appended(node: Node, text: str, numbered: Sequence[tuple[int, str]]) -> Edit:
    entries = [
        f"{n}: {_scalar(name)}" if node.kind == "map" else _scalar(name) for n, name in numbered
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
    indent = _newline(text) + " " * (first - text.rfind("\n", 0, first) - 1)
    end = _line_end(text, end)
    return Edit(end, end, "".join(indent + entry for entry in entries).encode())


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_end(text: str, position: int) -> int:
    """Where the line ends that holds `position`, behind any comment."""
    return position + len(text[position:].split("\n", 1)[0].rstrip("\r"))


def _verify(
    document: DataYaml, patched: bytes, folders: Mapping[str, str], names: tuple[str, ...]
) -> None:
    """Raise where the patched document does not say what it should; YAML has many corners."""
    try:
        result = parse_yaml(document.path, patched)
    except DataError:
        result = None
    wanted = {split: (folders[split],) for split in document.splits if split in folders}
    if result is None or result.names != names or not _says(result, wanted):
        raise DataError(
            f"{document.path}: written too unusually to be changed in place; write path, train, "
            "val, test, nc and names as plain values and lists"
        )


def _says(document: DataYaml, wanted: Mapping[str, tuple[str, ...]]) -> bool:
    said = {
        split: tuple(posixpath.normpath(one) for one in places)
        for split, places in document.splits.items()
    }
    return said == wanted and posixpath.normpath(document.root or ".") == "."


def _scalar(text: str) -> str:
    """A text as YAML: plain where that reads back as a text, else in double quotes."""
    if PLAIN.fullmatch(text):
        tag = RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
        if tag == "tag:yaml.org,2002:str":
            return text
    dumped: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf"))
    return dumped.strip("\n")
