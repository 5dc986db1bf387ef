"""Find the byte positions of all values in VOC's XML, so that a writer can replace single values.

expat scans a document once and gives the positions. In memory, documents are UTF-8; a writer
restores their own encoding. A document that would not get the same bytes again is refused.
"""

import codecs
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias
from xml.parsers import expat

from boxmend.data.formats.documents import Edit, apply_edits

MAX_DEPTH = 100  # VOC needs five levels

OBJECT, NAME, POSE, TRUNCATED, OCCLUDED, DIFFICULT, NOTE, BOX, XMIN, YMIN, XMAX, YMAX = range(12)
ROOT, FILENAME, SIZE, WIDTH, HEIGHT, SEGMENTED, SOURCE, OWNER = range(12, 20)
TAGS = (
    *("object", "name", "pose", "truncated", "occluded", "difficult", "boxmend", "bndbox"),
    *("xmin", "ymin", "xmax", "ymax"),
    *("annotation", "filename", "size", "width", "height", "segmented", "source", "owner"),
)
"""The elements whose positions are kept, by column: first those of an object, then others."""

WHITE_SPACE = " \t\r\n"  # by the definition of XML
ABSENT = -1
_STRIDE = 2 * (YMAX + 1)  # a start and an end for each column of an object
_NO_COLUMN = -1  # of a known element whose position is not needed

_Node: TypeAlias = tuple[int, dict[str, "_Node"]]  # column, children
_UNKNOWN: _Node = (_NO_COLUMN, {})


def _make_node(column: int, *leaves: int, **children: _Node) -> _Node:
    return column, {TAGS[leaf]: (leaf, {}) for leaf in leaves} | children


_KNOWN: _Node = _make_node(  # the paths of known elements; the name of an object's part is not one
    _NO_COLUMN,
    annotation=_make_node(
        ROOT,
        *(FILENAME, SEGMENTED),
        folder=_make_node(_NO_COLUMN),
        path=_make_node(_NO_COLUMN),
        source=(SOURCE, {}),
        owner=(OWNER, {}),
        size=_make_node(SIZE, WIDTH, HEIGHT, depth=_make_node(_NO_COLUMN)),
        object=_make_node(
            OBJECT,
            *(NAME, POSE, TRUNCATED, OCCLUDED, DIFFICULT, NOTE),
            bndbox=_make_node(BOX, XMIN, YMIN, XMAX, YMAX),
        ),
    ),
)
_CONTENT_UNCOUNTED = {SOURCE, OWNER, NOTE}  # elements within them are not counted as extras


class MalformedXmlError(Exception):
    """A file is not a VOC document; the message has the reason and the position."""


@dataclass(slots=True)
class VocXml:
    """A document with the spans of its values.

    The span of an object includes its tags; other spans hold only the content of the element.
    """

    data: bytes  # UTF-8
    codec: str  # of the file
    spans: "array[int]"  # of the objects, one after another
    head: tuple[int, ...]  # spans of the document's own columns
    extras: tuple[str, ...]  # one word for each part that VOC does not define

    def __len__(self) -> int:
        return len(self.spans) // _STRIDE

    def span(self, position: int, column: int) -> tuple[int, int]:
        """Return the span of a value of the object at `position`, or (ABSENT, ABSENT)."""
        index = position * _STRIDE + 2 * column
        return self.spans[index], self.spans[index + 1]

    def content(self, position: int, column: int) -> bytes:
        """Return the bytes of a value of the object at `position`; empty if it is absent."""
        index = position * _STRIDE + 2 * column
        return self.data[self.spans[index] : self.spans[index + 1]]

    def head_span(self, column: int) -> tuple[int, int]:
        """Return the span of a value of the document itself, like `span`."""
        index = 2 * (column - ROOT)
        return self.head[index], self.head[index + 1]

    def head_content(self, column: int) -> bytes:
        """Return the bytes of a value of the document itself, like `content`."""
        start, end = self.head_span(column)
        return self.data[start:end]

    def apply(self, edits: Iterable[Edit]) -> Iterator[bytes]:
        """Yield the file with the edits applied, in its own encoding.

        Characters that the encoding lacks become character references.
        """
        pieces = apply_edits(self.data, sorted(edits))
        if self.codec == "utf-8":
            return pieces
        text = b"".join(pieces).decode()
        return iter([text.encode(self.codec, "xmlcharrefreplace")])


def parse_xml(content: bytes) -> VocXml:
    """Find the spans of all values in a document; raise a MalformedXmlError if it is not VOC."""
    data, codec = _decode_to_utf8(content)
    scanner = _Scanner(data)
    parser = scanner.parser
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise MalformedXmlError(f"is not well-formed XML: {error}") from error
    finally:  # break the reference cycle of parser and scanner: the collector would be slow
        parser.StartElementHandler = parser.EndElementHandler = None
        parser.CommentHandler = parser.StartDoctypeDeclHandler = None
    head = tuple(scanner.record[_STRIDE:])
    if head[0] == ABSENT:
        raise MalformedXmlError("is XML, but its outermost element is not <annotation>")
    return VocXml(data, codec, scanner.spans, head, tuple(scanner.extras))


class _Scanner:
    """The handlers of one parse; of repeated elements on the paths of `_KNOWN` the first counts."""

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
        if column != _NO_COLUMN and record[2 * column] != ABSENT:
            node, column = _UNKNOWN, _NO_COLUMN  # a repeated element
        if attributes or node is _UNKNOWN or column == NOTE:
            self.count_extra(tag, attributes, node)
        stack.append(node)
        if column == OBJECT:
            record[0] = self.parser.CurrentByteIndex
        elif column != _NO_COLUMN:
            position = self.parser.CurrentByteIndex
            # without attributes the first ">" ends the tag
            record[2 * column] = (
                find_tag_end(self.data, position)
                if attributes
                else self.data.find(b">", position) + 1
            )
        if len(stack) > MAX_DEPTH:
            raise MalformedXmlError(f"has elements nested more than {MAX_DEPTH} levels deep")

    def end(self, _tag: str) -> None:
        column = self.stack.pop()[0]
        if column == _NO_COLUMN:
            return
        record = self.record
        position = self.parser.CurrentByteIndex
        if column != OBJECT:
            record[2 * column + 1] = position
            return
        # for <object/> expat gives the end of the tag, else the start of </object>
        is_closing_tag = self.data.startswith(b"</", position) and not _is_self_closed(
            self.data, record[0], position
        )
        record[1] = self.data.find(b">", position) + 1 if is_closing_tag else position
        self.spans.extend(record[:_STRIDE])
        record[:_STRIDE] = _NO_OBJECT

    def count_extra(self, tag: str, attributes: dict[str, str], node: _Node) -> None:
        """Count an element that VOC does not define, once with its content, or its attributes."""
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
        # DTDs allow entity bombs and reading other files; no VOC document needs one.
        raise MalformedXmlError(
            "declares a document type (DTD), which is not allowed; remove <!DOCTYPE ...>"
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


def find_tag_end(data: bytes, start: int) -> int:
    """Return the position after the tag that starts at `start` of a well-formed document."""
    match = _TAG_PATTERN.match(data, start)
    assert match is not None
    return match.end()


def _is_self_closed(data: bytes, start: int, end: int) -> bool:
    """Return whether the tag that starts at `start` is a <tag/> that ends at `end`."""
    return data.startswith(b"/>", end - 2) and find_tag_end(data, start) == end


def decode_text(content: bytes) -> str:
    """Return the text of an element's content, with references resolved and ends trimmed."""
    if b"<" not in content and b"&" not in content and b"\r" not in content:
        return content.decode().strip(WHITE_SPACE)
    pieces = []
    for match in _CONTENT_PATTERN.finditer(content):
        if match["text"] is not None:
            pieces.append(_REFERENCE.sub(_resolve, _decode_lines(match["text"])))
        elif match["cdata"] is not None:
            pieces.append(_decode_lines(match["cdata"]))
    return "".join(pieces).strip(WHITE_SPACE)


def find_text_spans(content: bytes) -> list[tuple[int, int]]:
    """Return the spans of text in an element's content, between comments and other markup.

    Spans exclude white space around the text; a CDATA section is one text.
    """
    spans = []
    for match in _CONTENT_PATTERN.finditer(content):
        if match["cdata"] is not None:
            spans.append(match.span())
        elif match["text"] is not None and (text := match["text"].strip()):
            start = match.start() + match["text"].index(text)
            spans.append((start, start + len(text)))
    return spans


def _decode_lines(text: bytes) -> str:
    return text.decode().replace("\r\n", "\n").replace("\r", "\n")


def _resolve(match: re.Match[str]) -> str:
    name = match[1]
    if name[0] != "#":
        return _ENTITIES[name]
    return chr(int(name[2:], 16) if name[1] == "x" else int(name[1:]))


_DECLARED = re.compile(rb"""<\?xml\s[^>]*?\bencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']""")
_CODECS = re.compile(
    r"ascii|utf-8|iso8859-\d+|cp125\d|cp866|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|cp932"
    r"|euc_jp|euc_kr|cp949"
)
"""Encodings of text files; Python's registry also has codecs for other purposes."""


def _decode_to_utf8(content: bytes) -> tuple[bytes, str]:
    """Return the document in UTF-8, and the codec that restores its bytes."""
    codec = _detect_codec(content)
    if codec == "utf-8":
        return content, codec
    try:
        text = content.decode(codec)
        if text.encode(codec) == content:
            return text.encode(), codec
    except UnicodeError as error:
        raise MalformedXmlError(f"declares {codec} but is not valid in it: {error}") from error
    raise MalformedXmlError(f"cannot be restored byte for byte in {codec}; save it as UTF-8")


def _detect_codec(content: bytes) -> str:
    """Return the codec from the file's first bytes or its declaration."""
    if content.startswith((codecs.BOM_UTF16_LE, b"<\0")):
        return "utf-16-le"
    if content.startswith((codecs.BOM_UTF16_BE, b"\0<")):
        return "utf-16-be"
    declared = _DECLARED.match(content[:512])
    if declared is None:  # also after a byte order mark of UTF-8
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
    """Return whether XML can hold these characters."""
    return not _UNWRITABLE.search(text)


_UNWRITABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def escape_xml(text: str) -> str:
    """Return a text escaped for the content of an element."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;")  # XML readers turn a bare one into a line feed
