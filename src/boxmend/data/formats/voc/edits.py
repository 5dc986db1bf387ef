"""The smallest edits that bring a VOC document from one state to another, in its own style."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from boxmend.data.dataset import Note
from boxmend.data.formats.documents import Edit
from boxmend.data.formats.voc.scanning import (
    ABSENT,
    BOX,
    NOTE,
    OBJECT,
    ROOT,
    TAGS,
    XMIN,
    VocXml,
    escape_xml,
    is_writable,
    tag_end,
    text_spans,
)

Values = Mapping[int, str]  # what the elements of an object say, by column of `scanning`


@dataclass(frozen=True)
class Style:
    """How a document is laid out: what stands before an object, its elements, its coordinates.

    Each is a line break with an indentation, or nothing where the document has none there.
    """

    object: str
    element: str
    coordinate: str


TABS = Style("\n\t", "\n\t\t", "\n\t\t\t")


@dataclass
class ObjectChanges:
    """What becomes of the objects of one document."""

    changed: dict[int, dict[int, str]]  # position -> new values by column
    removed: set[int]  # positions
    added: list[Values]
    notes: dict[int, Note] = field(default_factory=dict)
    """What <boxmend> says, by position; added objects come after those that are there."""


def edits(xml: VocXml, changes: ObjectChanges) -> list[Edit]:
    """All edits of a document, in order."""
    style = style_of(xml)
    made: list[Edit] = []
    notes = changes.notes
    for position in changes.changed.keys() | (notes.keys() & set(range(len(xml)))):
        values = changes.changed.get(position, {})
        made += _changed(xml, position, values, style, notes.get(position))
    removals = {k: _removed(xml.data, *xml.span(k, OBJECT)) for k in changes.removed}
    made += removals.values()
    if changes.added:
        added = enumerate(changes.added, len(xml))
        texts = (object_text(values, style, notes.get(position)) for position, values in added)
        new = "".join(style.object + text for text in texts)
        if len(xml):
            last = len(xml) - 1
            end = removals[last].end if last in removals else xml.span(last, OBJECT)[1]
            made.append(Edit(end, end, new.encode()))
        else:
            made.append(_filled(xml.data, xml.head_span(ROOT), "annotation", new))
    return sorted(made)


def object_text(values: Values, style: Style, note: Note | None = None) -> str:
    """A whole <object> element."""
    lines = "".join(style.element + line for line in _elements(values, style, note))
    return f"<object>{lines}{style.element and style.object}</object>"


def _elements(values: Values, style: Style, note: Note | None) -> Iterator[str]:
    """The elements of an object that say these values, coordinates within their bndbox."""
    yield from (_leaf(column, text) for column, text in values.items() if column < XMIN)
    corners = _coordinates(values, style)
    if corners:
        yield f"<bndbox>{corners}{style.coordinate and style.element}</bndbox>"
    if note:
        yield f"<{TAGS[NOTE]}>{_note_text(note, style)}</{TAGS[NOTE]}>"


def _note_text(note: Note, style: Style) -> str:
    """What a note's element holds: an element for each of its values, laid out like a bndbox."""
    leaves = (f"<{key}>{_note_value(one)}</{key}>" for key, one in note.items())
    return "".join(style.coordinate + leaf for leaf in leaves) + (
        style.coordinate and style.element
    )


def _note_value(said: float | str | None) -> str:
    text = "" if said is None else str(said)
    if not is_writable(text):
        text = ascii(text)[1:-1]
    return escape_xml(text)


def _coordinates(values: Values, style: Style) -> str:
    leaves = (_leaf(column, text) for column, text in values.items() if column >= XMIN)
    return "".join(style.coordinate + leaf for leaf in leaves)


def _leaf(column: int, text: str) -> str:
    return f"<{TAGS[column]}>{escape_xml(text)}</{TAGS[column]}>"


def _changed(
    xml: VocXml, position: int, values: Values, style: Style, note: Note | None
) -> Iterator[Edit]:
    """Edits that give an object new values: in their place, or as elements it did not have."""
    missing: dict[int, str] = {}
    for column, text in values.items():
        span = xml.span(position, column)
        if span[0] == ABSENT:
            missing[column] = text
        else:
            yield from _replaced(xml.data, span, TAGS[column], escape_xml(text))
    box = xml.span(position, BOX)
    if box[0] != ABSENT and (corners := _coordinates(missing, style)):
        yield _filled(xml.data, box, "bndbox", corners)
        missing = {column: text for column, text in missing.items() if column < XMIN}
    old_note = xml.span(position, NOTE)
    if note and old_note[0] != ABSENT:
        yield _refilled(xml.data, old_note, TAGS[NOTE], _note_text(note, style))
        note = None
    if missing or note:
        lines = "".join(style.element + line for line in _elements(missing, style, note))
        yield _filled(xml.data, _inside(xml, position), "object", lines)


def _replaced(data: bytes, span: tuple[int, int], tag: str, text: str) -> Iterator[Edit]:
    """Edits that make an element say `text`; white space, comments and the like stay."""
    start, end = span
    spans = text_spans(data[start:end])
    if not spans:
        yield _filled(data, span, tag, text)
        return
    for k, (first, last) in enumerate(spans):
        yield Edit(start + first, start + last, b"" if k else text.encode())


def _filled(data: bytes, span: tuple[int, int], tag: str, text: str) -> Edit:
    """Add text or elements at the end of what an element holds; <tag/> is opened for it."""
    start, end = span
    if start == end and data.startswith(b"/>", start - 2):
        return Edit(start - 2, start, f">{text}</{tag}>".encode())
    end = start + len(data[start:end].rstrip())  # what closes the element keeps its own line
    return Edit(end, end, text.encode())


def _refilled(data: bytes, span: tuple[int, int], tag: str, text: str) -> Edit:
    """Replace all that an element holds; <tag/> is opened for it."""
    start, end = span
    return Edit(start, end, text.encode()) if end > start else _filled(data, span, tag, text)


def _removed(data: bytes, start: int, end: int) -> Edit:
    """Take an element away; with its line break and indentation if it has its lines for itself."""
    first, last = start, end
    while data[first - 1 : first] in (b" ", b"\t"):
        first -= 1
    while data[last : last + 1] in (b" ", b"\t"):
        last += 1
    if data[first - 1 : first] != b"\n" or data[last : last + 1] not in (b"\n", b"\r"):
        return Edit(start, end, b"")
    first -= 1
    if data[first - 1 : first] == b"\r":
        first -= 1
    return Edit(first, last, b"")


def _inside(xml: VocXml, position: int) -> tuple[int, int]:
    """The span of what an object holds, without its tags."""
    start, end = xml.span(position, OBJECT)
    inner = tag_end(xml.data, start)
    return inner, inner if inner == end else xml.data.rindex(b"</", inner, end)


def style_of(xml: VocXml) -> Style:
    """The layout of a document, by its last object, else by its first element."""
    data = xml.data
    if not len(xml):
        before = _break(data, xml.head_span(ROOT)[0])
        indent = before.lstrip("\r\n")
        return Style(before, before and before + indent, before and before + 2 * indent)
    last = len(xml) - 1
    start = xml.span(last, OBJECT)[0]
    before = _break(data, start - _space_before(data, start))
    element = _break(data, _inside(xml, last)[0])
    box = xml.span(last, BOX)[0]
    if box != ABSENT:
        return Style(before, element, _break(data, box))
    indent = element.removeprefix(before) if before else element.lstrip("\r\n")
    return Style(before, element, element and element + indent)


def _space_before(data: bytes, end: int) -> int:
    before = data[max(end - 256, 0) : end]  # no indentation is longer
    return len(before) - len(before.rstrip())


def _break(data: bytes, start: int) -> str:
    """The last line break with its indentation, in the white space that begins at `start`."""
    end = start
    while data[end : end + 1] in (b" ", b"\t", b"\r", b"\n"):
        end += 1
    space = data[start:end].decode()
    newline = space.rfind("\n")
    if newline < 0:
        return ""
    return space[newline - (space[newline - 1 : newline] == "\r") :]
