"""VOC's XML at the level of bytes: where every value stands, so that a writer can replace it alone.

A document is scanned once, by expat, whose byte positions become the spans kept here. Inside,
documents are UTF-8; what came in another encoding is encoded back when it is written, which
gives the same bytes again or the document is refused.
"""

import codecs
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias
from xml.parsers import expat

from boxmend.data.formats.documents import Edit, apply_edits

MAX_DEPTH = 100  # VOC itself needs five levels

OBJECT, NAME, POSE, TRUNCATED, OCCLUDED, DIFFICULT, NOTE, BOX, XMIN, YMIN, XMAX, YMAX = range(12)
ROOT, FILENAME, SIZE, WIDTH, HEIGHT, SEGMENTED, SOURCE, OWNER = range(12, 20)
TAGS = (
    *("object", "name", "pose", "truncated", "occluded", "difficult", "boxmend", "bndbox"),
    *("xmin", "ymin", "xmax", "ymax"),
    *("annotation", "filename", "size", "width", "height", "segmented", "source", "owner"),
)
"""The elements whose places are kept, by column: first those of an object, then the document's."""

SPACE = " \t\r\n"  # what XML calls white space
ABSENT = -1
_STRIDE = 2 * (YMAX + 1)  # a start and an end for each column of an object
_UNKEPT = -1  # column of an element that is known but whose place is not needed

_Node: TypeAlias = tuple[int, dict[str, "_Node"]]  # column, children
_UNKNOWN: _Node = (_UNKEPT, {})


def _node(column: int, *leaves: int, **children: _Node) -> _Node:
    return column, {TAGS[leaf]: (leaf, {}) for leaf in leaves} | children


_KNOWN: _Node = _node(  # the only paths that mean something; a part's own name is on none of them
    _UNKEPT,
    annotation=_node(
        ROOT,
        *(FILENAME, SEGMENTED),
        folder=_node(_UNKEPT),
        path=_node(_UNKEPT),
        source=(SOURCE, {}),
        owner=(OWNER, {}),
        size=_node(SIZE, WIDTH, HEIGHT, depth=_node(_UNKEPT)),
        object=_node(
            OBJECT,
            *(NAME, POSE, TRUNCATED, OCCLUDED, DIFFICULT, NOTE),
            bndbox=_node(BOX, XMIN, YMIN, XMAX, YMAX),
        ),
    ),
)
_CONTENT_UNCOUNTED = {SOURCE, OWNER, NOTE}  # what stands in them is no extra of its own


class MalformedXmlError(Exception):
    """A file that is no VOC document; the message says why, and where."""


@dataclass(slots=True)
class VocXml:
    """A document with the places of its values; spans hold the content, without the tags.

    Only the span of an object is that of the whole element.
    """

    data: bytes  # UTF-8
    codec: str  # of the file
    spans: "array[int]"  # of the objects, one after another
    head: tuple[int, ...]  # spans of the document's own columns
    extras: tuple[str, ...]  # what is there beyond VOC's own elements, a word each time

    def __len__(self) -> int:
        return len(self.spans) // _STRIDE

    def span(self, position: int, column: int) -> tuple[int, int]:
        """Where a value of the object at `position` stands; (ABSENT, ABSENT) where it does not."""
        at = position * _STRIDE + 2 * column
        return self.spans[at], self.spans[at + 1]

    def content(self, position: int, column: int) -> bytes:
        """The bytes of a value of the object at `position`; none where it is absent."""
        at = position * _STRIDE + 2 * column
        return self.data[self.spans[at] : self.spans[at + 1]]

    def head_span(self, column: int) -> tuple[int, int]:
        """Where a value of the document itself stands, like `span`."""
        at = 2 * (column - ROOT)
        return self.head[at], self.head[at + 1]

    def head_content(self, column: int) -> bytes:
        """The bytes of a value of the document itself, like `content`."""
        start, end = self.head_span(column)
        return self.data[start:end]

    def patched(self, edits: Iterable[Edit]) -> Iterator[bytes]:
        """The file with the edits made, in its own encoding.

        Characters which that encoding lacks become character references.
        """
        pieces = apply_edits(self.data, sorted(edits))
        if self.codec == "utf-8":
            return pieces
        text = b"".join(pieces).decode()
        return iter([text.encode(self.codec, "xmlcharrefreplace")])


def parse_xml(content: bytes) -> VocXml:
    """Find the places of all values in a document; raise MalformedXml where it is none."""
    data, codec = _as_utf8(content)
    scanner = _Scanner(data)
    parser = scanner.parser
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise MalformedXmlError(f"is no well-formed XML: {error}") from error
    finally:  # parser and scanner hold each other; thousands of them should not wait for the gc
        parser.StartElementHandler = parser.EndElementHandler = None
        parser.CommentHandler = parser.StartDoctypeDeclHandler = None
    head = tuple(scanner.record[_STRIDE:])
    if head[0] == ABSENT:
        raise MalformedXmlError("is XML, but its outermost element is not <annotation>")
    return VocXml(data, codec, scanner.spans, head, tuple(scanner.extras))


class _Scanner:
    """The handlers of one parse; elements count only on the paths of `_KNOWN`, the first wins."""

    def __init__(self, data: bytes):
        self.data = data
        self.spans = array("i")
        self.record = [ABSENT] * (2 * len(TAGS))
        self.extras: list[str] = []
        self.stack = [_KNOWN]
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CommentHandler = self.comment
        self.parser.StartDoctypeDeclHandler = self.doctype

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        stack, record = self.stack, self.record
        node = stack[-1][1].get(tag, _UNKNOWN)
        column = node[0]
        if column != _UNKEPT and record[2 * column] != ABSENT:
            node, column = _UNKNOWN, _UNKEPT  # a repeated element
        if attributes or node is _UNKNOWN or column == NOTE:
            self.note(tag, attributes, node)
        stack.append(node)
        if column == OBJECT:
            record[0] = self.parser.CurrentByteIndex
        elif column != _UNKEPT:
            at = self.parser.CurrentByteIndex
            # without attributes the first ">" ends the tag
            record[2 * column] = (
                tag_end(self.data, at) if attributes else self.data.find(b">", at) + 1
            )
        if len(stack) > MAX_DEPTH:
            raise MalformedXmlError(f"nests elements more than {MAX_DEPTH} deep")

    def end(self, _tag: str) -> None:
        column = self.stack.pop()[0]
        if column == _UNKEPT:
            return
        record = self.record
        at = self.parser.CurrentByteIndex
        if column != OBJECT:
            record[2 * column + 1] = at
            return
        # of <object/> expat gives the end of the tag, else the start of </object>
        is_closing_tag = self.data.startswith(b"</", at) and not _is_self_closed(
            self.data, record[0], at
        )
        record[1] = self.data.find(b">", at) + 1 if is_closing_tag else at
        self.spans.extend(record[:_STRIDE])
        record[:_STRIDE] = _NO_OBJECT

    def note(self, tag: str, attributes: dict[str, str], node: _Node) -> None:
        """Count an element that is not VOC's, once with all it holds, or its attributes."""
        parent = self.stack[-1]
        if parent is _UNKNOWN or parent[0] in _CONTENT_UNCOUNTED:
            return
        if node is _UNKNOWN or node[0] == NOTE:
            self.extras.append(f"<{tag}> element")
        else:
            self.extras.extend(f"{name} attribute of <{tag}>" for name in attributes)

    def comment(self, _text: str) -> None:
        self.extras.append("comment")

    def doctype(self, *_arguments: object) -> None:
        # The road of entity bombs and of files read from elsewhere; no VOC document needs one.
        raise MalformedXmlError(
            "declares a document type (DTD), which is refused; remove <!DOCTYPE ...>"
        )


_NO_OBJECT = [ABSENT] * _STRIDE
_TAG = rb"""<[^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*>"""
_TAG_PATTERN = re.compile(_TAG)
_CONTENT_PATTERN = re.compile(
    rb"<!\[CDATA\[(?P<cdata>.*?)\]\]>|<!--.*?-->|<\?.*?\?>|" + _TAG + rb"|(?P<text>[^<]+)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"&(#x[0-9a-fA-F]+|#[0-9]+|amp|lt|gt|quot|apos);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def tag_end(data: bytes, start: int) -> int:
    """The byte after the tag that starts at `start` of a well-formed document."""
    match = _TAG_PATTERN.match(data, start)
    assert match is not None
    return match.end()


def _is_self_closed(data: bytes, start: int, at: int) -> bool:
    """Whether the tag that starts at `start` ends, as <tag/>, just before `at`."""
    return data.startswith(b"/>", at - 2) and tag_end(data, start) == at


def decode_text(content: bytes) -> str:
    """The text that an element's content means: references resolved, trimmed."""
    if b"<" not in content and b"&" not in content and b"\r" not in content:
        return content.decode().strip(SPACE)
    pieces = []
    for match in _CONTENT_PATTERN.finditer(content):
        if match["text"] is not None:
            pieces.append(_REFERENCE.sub(_character, _lines(match["text"])))
        elif match["cdata"] is not None:
            pieces.append(_lines(match["cdata"]))
    return "".join(pieces).strip(SPACE)


def text_spans(content: bytes) -> list[tuple[int, int]]:
    """Where the text of an element's content stands, between comments and other markup.

    White space around it is left out; a CDATA section is text as a whole.
    """
    spans = []
    for match in _CONTENT_PATTERN.finditer(content):
        if match["cdata"] is not None:
            spans.append(match.span())
        elif match["text"] is not None and (text := match["text"].strip()):
            start = match.start() + match["text"].index(text)
            spans.append((start, start + len(text)))
    return spans


def _lines(text: bytes) -> str:
    return text.decode().replace("\r\n", "\n").replace("\r", "\n")


def _character(match: re.Match[str]) -> str:
    name = match[1]
    if name[0] != "#":
        return _ENTITIES[name]
    return chr(int(name[2:], 16) if name[1] == "x" else int(name[1:]))


_DECLARED = re.compile(rb"""<\?xml\s[^>]*?\bencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']""")
_CODECS = re.compile(
    r"ascii|utf-8|iso8859-\d+|cp125\d|cp866|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|cp932"
    r"|euc_jp|euc_kr|cp949"
)
"""Encodings of text files in use; Python's registry also holds some that are no such thing."""


def _as_utf8(content: bytes) -> tuple[bytes, str]:
    """The document in UTF-8, and the codec that leads back to its bytes."""
    codec = _codec(content)
    if codec == "utf-8":
        return content, codec
    try:
        text = content.decode(codec)
        if text.encode(codec) == content:
            return text.encode(), codec
    except UnicodeError as error:
        raise MalformedXmlError(f"is no {codec} text, though it is marked so: {error}") from error
    raise MalformedXmlError(f"cannot be written back in {codec} byte for byte; save it as UTF-8")


def _codec(content: bytes) -> str:
    """The codec by the file's first bytes, or by its declaration."""
    if content.startswith((codecs.BOM_UTF16_LE, b"<\0")):
        return "utf-16-le"
    if content.startswith((codecs.BOM_UTF16_BE, b"\0<")):
        return "utf-16-be"
    declared = _DECLARED.match(content[:512])
    if declared is None:  # as it is behind a byte order mark of UTF-8, which settles it
        return "utf-8"
    name = declared[1].decode()
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        codec = ""
    if not _CODECS.fullmatch(codec):
        raise MalformedXmlError(
            f"declares the encoding {name}, which is not supported; save it as UTF-8"
        )
    return codec


def is_writable(text: str) -> bool:
    """Whether XML can hold these characters at all."""
    return not _UNWRITABLE.search(text)


_UNWRITABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def escape_xml(text: str) -> str:
    """A text as it stands between tags."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;")  # a bare one would be read as a line feed
