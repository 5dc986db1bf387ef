"""COCO documents of every look: drawn by hypothesis, and parsed so that each byte can be told.

A document is drawn as text from the start, so that numbers, spaces and escapes are as odd as
JSON allows. `parsed` keeps the order of keys, doubled keys, and the text of every number.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from boxmend.data.dataset import Dataset
from boxmend.data.formats import read

IMAGE = {"id": 1, "file_name": "1.jpg", "width": 64, "height": 48}
BOX = {"id": 5, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}
LABELS = ("cat", "dog", "Straße \N{SNOWMAN}")
SIDES = ["0", "-0", "1.0", "1e2", "12.50", "33", "7.125", "2E+1", "100", "0.1", "1234567890.5"]
EXTENTS = ["1.0", "1e1", "12.50", "33", "7.125", "2E+1", "100", "0.3333333"]


def read_bytes(data: bytes, name: str = "instances_train.json") -> Dataset:
    """The dataset of a document; the file is gone when it comes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        return read(path)


def written(dataset: Dataset, segmentation: str = "flag", allow_lossy: bool = False) -> bytes:
    """The one document that a dataset is saved as."""
    with tempfile.TemporaryDirectory() as folder:
        saved = dataset.save(
            Path(folder, "out"),
            images_as="none",
            segmentation=segmentation,
            allow_lossy=allow_lossy,
        )
        (name,) = saved.files
        return (saved.out / name).read_bytes()


def document(*annotations: Any, **others: Any) -> bytes:
    """A small document in the usual layout; `others` replace or add top-level members."""
    top = {"images": [IMAGE], "annotations": annotations, "categories": [{"id": 3, "name": "cat"}]}
    return json.dumps(top | others).encode()


def box(**others: Any) -> dict[str, Any]:
    """An annotation of it with some members changed, or taken out by an ellipsis."""
    return {key: value for key, value in (BOX | others).items() if value is not ...}


class Lit(str):
    """A number as it is written."""


class Pairs(list[tuple[str, Any]]):
    """An object: its members in order, doubled keys and all."""


@dataclass
class Near:
    """Equal to every number that is about this one."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lit) and abs(float(other) - self.value) <= 2e-6


def parsed(data: bytes) -> Any:
    """A document with nothing lost: pairs for objects, texts for numbers."""
    return json.loads(
        data.decode("utf-8-sig"),
        object_pairs_hook=Pairs,
        parse_int=Lit,
        parse_float=Lit,
        parse_constant=Lit,
    )


def last(pairs: Pairs, key: str) -> int:
    """The place of a key's last member, which is the one that counts; -1 where it is absent."""
    return max((place for place, (one, _) in enumerate(pairs) if one == key), default=-1)


def value(pairs: Pairs, key: str) -> Any:
    """The value of a key, None where it is absent."""
    place = last(pairs, key)
    return pairs[place][1] if place >= 0 else None


def put(pairs: Pairs, key: str, new: Any) -> None:
    """Replace a key's value, or put it at the end."""
    place = last(pairs, key)
    if place >= 0:
        pairs[place] = (key, new)
    else:
        pairs.append((key, new))


@dataclass(frozen=True)
class Style:
    """How a document is laid out."""

    comma: str = ", "
    colon: str = ": "
    indent: str | None = None
    newline: str = "\n"
    mark: bool = False


STYLES = [
    Style(),
    Style(",", ":"),
    Style(",", ": ", "  "),
    Style(",", " : ", "\t", "\r\n"),
    Style(" ,  ", ":\n"),
    Style(mark=True),
]


def render(members: list[tuple[str, Any]], style: Style, depth: int = 0) -> str:
    """An object as text; values are texts, or lists of members to be laid out in turn."""
    texts = [f"{key}{style.colon}{_rendered(one, style, depth + 1)}" for key, one in members]
    return _around("{", "}", texts, style, depth)


def _rendered(one: Any, style: Style, depth: int) -> str:
    if isinstance(one, str):
        return one
    texts = [render(each, style, depth + 1) if isinstance(each, list) else each for each in one]
    return _around("[", "]", texts, style, depth)


def _around(opening: str, closing: str, texts: list[str], style: Style, depth: int) -> str:
    if style.indent is None or not texts:
        return opening + style.comma.join(texts) + closing
    inner = style.newline + style.indent * (depth + 1)
    outer = style.newline + style.indent * depth
    return opening + inner + (style.comma.rstrip() + inner).join(texts) + outer + closing


def keys(name: str) -> st.SearchStrategy[str]:
    """A key as text: mostly plain, sometimes with one of its letters escaped."""
    plain = json.dumps(name)
    escaped = [f'"{name[:k]}\\u{ord(letter):04x}{name[k + 1 :]}"' for k, letter in enumerate(name)]
    return st.one_of(st.just(plain), st.just(plain), st.just(plain), st.sampled_from(escaped))


STRINGS = st.sampled_from(
    ['""', '"bbox"', '"\\"bbox\\": [1, 2, 3, 4]"', '"caf\\u00e9"', '"\N{SNOWMAN}{]"', '"area"']
)
OUTLINES = st.sampled_from(
    [
        "[]",
        "null",
        "[ ]",
        "[[1, 2.50, 3, 4, 5, 6]]",
        '{"counts": [1, 2], "size": [3, 4]}',
        '{"counts": "abc\\\\{", "size": [3, 4]}',
    ]
)
EXTRAS: dict[str, st.SearchStrategy[str]] = {
    "note": STRINGS,
    "score": st.sampled_from(["0.10", "1e-7", "-0.0", "123456789012345678901234567890"]),
    "attributes": st.sampled_from(
        ['{"bbox": [0, 0, 0, 0], "category_id": 77, "area": 1}', '{"a": {"area": 5}}', "{}"]
    ),
    "keypoints": st.just("[1, 2, 2, 0, 0, 0]"),
    "boxmend": st.sampled_from(
        ['{"seen": true}', '{"stale": ["area"], "by": "x"}', '{"stale": ["segmentation"]}']
    ),
}
DOUBLES = {
    "bbox": "[9, 9, 9, 9]",
    "category_id": "1",
    "area": "5.0",
    "segmentation": "[[1, 1, 2, 2, 3, 3]]",
    "iscrowd": "0",
}


@st.composite
def annotations(draw: st.DrawFn, identity: int, images: list[int]) -> list[tuple[str, str]]:
    """The members of an annotation."""
    sides = draw(st.tuples(*[st.sampled_from(SIDES)] * 2, *[st.sampled_from(EXTENTS)] * 2))
    comma = draw(st.sampled_from([", ", ",", " , ", ",\n"]))
    members = {
        "id": str(identity),
        "image_id": str(draw(st.sampled_from(images))),
        "category_id": str(draw(st.integers(1, len(LABELS)))),
        "bbox": f"[{comma.join(sides)}]",
    }
    if draw(st.booleans()):
        members["area"] = draw(st.sampled_from(["1.0", "1e2", "0", "12.500", "null", '"a b"']))
    if draw(st.booleans()):
        members["iscrowd"] = draw(st.sampled_from(["0", "1", "false", "null"]))
    if draw(st.booleans()):
        members["segmentation"] = draw(OUTLINES)
    for name, values in EXTRAS.items():
        if draw(st.integers(0, 3)) == 0:
            members[name] = draw(values)
    order = draw(st.permutations(sorted(members)))
    entry = [(draw(keys(name)), members[name]) for name in order]
    doubled = [name for name in DOUBLES if name in members and draw(st.integers(0, 9)) == 0]
    return [(draw(keys(name)), DOUBLES[name]) for name in doubled] + entry


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A COCO document as bytes."""
    style = draw(st.sampled_from(STYLES))
    images = draw(st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True))
    ids = draw(st.lists(st.integers(1, 10**12), max_size=6, unique=True))
    top: dict[str, Any] = {
        "images": [
            [
                ('"id"', str(one)),
                ('"file_name"', f'"{one}.jpg"'),
                ('"width"', "64"),
                ('"height"', "48"),
                ('"license"', "1"),
            ]
            for one in images
        ],
        "annotations": [draw(annotations(one, images)) for one in ids],
        "categories": [
            [('"supercategory"', '"thing"'), ('"name"', json.dumps(name)), ('"id"', str(k))]
            for k, name in enumerate(LABELS, 1)
        ],
    }
    if not ids and draw(st.booleans()):
        del top["annotations"]
    for name, text in (
        ("info", '{"annotations": [{"bbox": 1}], "year": 2017.0}'),
        ("licenses", '[{"id": 1, "url": "http:\\/\\/x"}]'),
        ("\N{SNOWMAN}", "-0"),
    ):
        if draw(st.booleans()):
            top[name] = text
    order = draw(st.permutations(sorted(top)))
    members = [(draw(keys(name)), top[name]) for name in order]
    if "annotations" in top and draw(st.integers(0, 9)) == 0:
        members.insert(0, ('"annotations"', '[{"id": 1, "bbox": []}]'))
    text = render(members, style)
    tail = draw(st.sampled_from(["", "\n", " \r\n\t"]))
    return (b"\xef\xbb\xbf" if style.mark else b"") + (text + tail).encode()


def entry_texts(data: bytes, key: str) -> tuple[list[str], list[str]]:
    """The entries of a top-level array as text, and what stands around them, by Python's json."""
    text = data.decode()
    decode = json.JSONDecoder().raw_decode
    place = _skip(text, text.index("{") + 1)
    found: tuple[int, int] | None = None
    while text[place] != "}":
        name, place = decode(text, place)
        place = _skip(text, _skip(text, place) + 1)  # the colon
        start = place
        _, place = decode(text, place)
        if name == key:
            found = (start, place)
        place = _skip(text, place)
        place = _skip(text, place + 1) if text[place] == "," else place
    assert found is not None
    entries, around = [], [text[: found[0]]]
    place = behind = found[0] + 1
    while text[place := _skip(text, place)] != "]":
        _, end = decode(text, place)
        around.append(text[behind:place])
        entries.append(text[place:end])
        behind = end
        place = _skip(text, end)
        place += text[place] == ","
    return entries, [*around, text[behind:]]


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place
