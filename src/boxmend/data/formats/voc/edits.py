"""Make the smallest edits that change a VOC document, in the document's style."""

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
    find_tag_end,
    find_text_spans,
    is_writable,
)

Values = Mapping[int, str]  # texts of an object's elements, by column of `scanning`


@dataclass(frozen=True)
class Style:
    """The layout of a document: the text before an object, an element, and a coordinate.

    Each is a line break with an indentation, or empty if the document has none there.
    """

    object: str
    element: str
    coordinate: str


TABS = Style("\n\t", "\n\t\t", "\n\t\t\t")


@dataclass
class ObjectChanges:
    """The changes to the objects of one document."""

    changed: dict[int, dict[int, str]]  # position -> new values by column
    removed: set[int]  # positions
    added: list[Values]
    notes: dict[int, Note] = field(default_factory=dict)
    """Contents of <boxmend> by position; new objects come after the existing ones."""


def make_edits(xml: VocXml, changes: ObjectChanges) -> list[Edit]:
    """Return all edits of a document, in order."""
    style = detect_style(xml)
    edits: list[Edit] = []
    notes = changes.notes
    for position in changes.changed.keys() | (notes.keys() & set(range(len(xml)))):
        values = changes.changed.get(position, {})
        edits += _change_object(xml, position, values, style, notes.get(position))
    removals = {k: _remove_element(xml.data, *xml.span(k, OBJECT)) for k in changes.removed}
    edits += removals.values()
    if changes.added:
        added = enumerate(changes.added, len(xml))
        texts = (format_object(values, style, notes.get(position)) for position, values in added)
        new = "".join(style.object + text for text in texts)
        if len(xml):
            last = len(xml) - 1
            end = removals[last].end if last in removals else xml.span(last, OBJECT)[1]
            edits.append(Edit(end, end, new.encode()))
        else:
            edits.append(_append_content(xml.data, xml.head_span(ROOT), "annotation", new))
    return sorted(edits)


def format_object(values: Values, style: Style, note: Note | None = None) -> str:
    """Return a complete <object> element."""
    lines = "".join(style.element + line for line in _format_elements(values, style, note))
    return f"<object>{lines}{style.element and style.object}</object>"


def _format_elements(values: Values, style: Style, note: Note | None) -> Iterator[str]:
    """Yield the elements of an object with these values; coordinates are within a bndbox."""
    yield from (_format_leaf(column, text) for column, text in values.items() if column < XMIN)
    corners = _format_coordinates(values, style)
    if corners:
        yield f"<bndbox>{corners}{style.coordinate and style.element}</bndbox>"
    if note:
        yield f"<{TAGS[NOTE]}>{_format_note(note, style)}</{TAGS[NOTE]}>"


def _format_note(note: Note, style: Style) -> str:
    """Return the content of a note's element: one element per value, laid out like a bndbox."""
    leaves = (f"<{key}>{_format_note_value(value)}</{key}>" for key, value in note.items())
    return "".join(style.coordinate + leaf for leaf in leaves) + (
        style.coordinate and style.element
    )


def _format_note_value(value: float | str | None) -> str:
    text = "" if value is None else str(value)
    if not is_writable(text):
        text = ascii(text)[1:-1]
    return escape_xml(text)


def _format_coordinates(values: Values, style: Style) -> str:
    leaves = (_format_leaf(column, text) for column, text in values.items() if column >= XMIN)
    return "".join(style.coordinate + leaf for leaf in leaves)


def _format_leaf(column: int, text: str) -> str:
    return f"<{TAGS[column]}>{escape_xml(text)}</{TAGS[column]}>"


def _change_object(
    xml: VocXml, position: int, values: Values, style: Style, note: Note | None
) -> Iterator[Edit]:
    """Yield the edits that set new values of an object, in place or as new elements."""
    missing: dict[int, str] = {}
    for column, text in values.items():
        span = xml.span(position, column)
        if span[0] == ABSENT:
            missing[column] = text
        else:
            yield from _replace_text(xml.data, span, TAGS[column], escape_xml(text))
    box = xml.span(position, BOX)
    if box[0] != ABSENT and (corners := _format_coordinates(missing, style)):
        yield _append_content(xml.data, box, "bndbox", corners)
        missing = {column: text for column, text in missing.items() if column < XMIN}
    old_note = xml.span(position, NOTE)
    if note and old_note[0] != ABSENT:
        yield _replace_content(xml.data, old_note, TAGS[NOTE], _format_note(note, style))
        note = None
    if missing or note:
        lines = "".join(style.element + line for line in _format_elements(missing, style, note))
        yield _append_content(xml.data, _get_inner_span(xml, position), "object", lines)


def _replace_text(data: bytes, span: tuple[int, int], tag: str, text: str) -> Iterator[Edit]:
    """Yield the edits that replace an element's text; white space and comments stay."""
    start, end = span
    spans = find_text_spans(data[start:end])
    if not spans:
        yield _append_content(data, span, tag, text)
        return
    for k, (first, last) in enumerate(spans):
        yield Edit(start + first, start + last, b"" if k else text.encode())


def _append_content(data: bytes, span: tuple[int, int], tag: str, text: str) -> Edit:
    """Return the edit that appends text or elements to an element; <tag/> gets an end tag."""
    start, end = span
    if start == end and data.startswith(b"/>", start - 2):
        return Edit(start - 2, start, f">{text}</{tag}>".encode())
    end = start + len(data[start:end].rstrip())  # the end tag keeps its own line
    return Edit(end, end, text.encode())


def _replace_content(data: bytes, span: tuple[int, int], tag: str, text: str) -> Edit:
    """Return the edit that replaces the content of an element; <tag/> gets an end tag."""
    start, end = span
    if end > start:
        return Edit(start, end, text.encode())
    return _append_content(data, span, tag, text)


def _remove_element(data: bytes, start: int, end: int) -> Edit:
    """Return the edit that removes an element, with its lines if nothing else is on them."""
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


def _get_inner_span(xml: VocXml, position: int) -> tuple[int, int]:
    """Return the span of an object's content, without its tags."""
    start, end = xml.span(position, OBJECT)
    inner = find_tag_end(xml.data, start)
    return inner, inner if inner == end else xml.data.rindex(b"</", inner, end)


def detect_style(xml: VocXml) -> Style:
    """Return the layout of a document, from its last object or else its first element."""
    data = xml.data
    if not len(xml):
        before = _find_break(data, xml.head_span(ROOT)[0])
        indent = before.lstrip("\r\n")
        return Style(before, before and before + indent, before and before + 2 * indent)
    last = len(xml) - 1
    start = xml.span(last, OBJECT)[0]
    before = _find_break(data, start - _count_space_before(data, start))
    element = _find_break(data, _get_inner_span(xml, last)[0])
    box = xml.span(last, BOX)[0]
    if box != ABSENT:
        return Style(before, element, _find_break(data, box))
    indent = element.removeprefix(before) if before else element.lstrip("\r\n")
    return Style(before, element, element and element + indent)


def _count_space_before(data: bytes, end: int) -> int:
    before = data[max(end - 256, 0) : end]  # no indentation is longer
    return len(before) - len(before.rstrip())


def _find_break(data: bytes, start: int) -> str:
    """Return the last line break with its indentation in the white space that starts at `start`."""
    end = start
    while data[end : end + 1] in (b" ", b"\t", b"\r", b"\n"):
        end += 1
    space = data[start:end].decode()
    newline = space.rfind("\n")
    if newline < 0:
        return ""
    return space[newline - (space[newline - 1 : newline] == "\r") :]
