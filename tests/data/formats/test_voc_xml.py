"""The scanner of VOC documents: byte positions of values, and refused documents."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from boxmend.data.formats.voc.edits import ObjectChanges, make_edits
from boxmend.data.formats.voc.scanning import (
    ABSENT,
    BOX,
    DIFFICULT,
    FILENAME,
    HEIGHT,
    MAX_DEPTH,
    NAME,
    OBJECT,
    POSE,
    ROOT,
    WIDTH,
    XMAX,
    XMIN,
    YMAX,
    YMIN,
    MalformedXmlError,
    VocXml,
    decode_text,
    escape_xml,
    is_writable,
    parse_xml,
)

BOX_TEXT = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"


def patch_document(
    xml: VocXml,
    changed: dict[int, dict[int, str]] | None = None,
    removed: set[int] | None = None,
    added: list[dict[int, str]] | None = None,
) -> bytes:
    changes = ObjectChanges(changed or {}, removed or set(), list(added or []))
    return b"".join(xml.apply(make_edits(xml, changes)))


def new_object(name: str = "dog") -> dict[int, str]:
    return {NAME: name, DIFFICULT: "0", XMIN: "1", YMIN: "2", XMAX: "3", YMAX: "4"}


# Places


def test_spans_hold_the_content_and_that_of_an_object_its_tags() -> None:
    xml = parse_xml(b"<annotation><object><name>dog</name></object></annotation>")
    assert len(xml) == 1
    assert xml.span(0, OBJECT) == (12, 45)
    assert xml.span(0, NAME) == (26, 29)
    assert xml.content(0, NAME) == b"dog"
    assert xml.head_span(ROOT) == (12, 45)


def test_values_of_the_document_are_not_those_of_its_objects() -> None:
    xml = parse_xml(
        b"<annotation><object><filename>no</filename><width>9</width></object>"
        b"<filename>a.png</filename><size><height>7</height><width>8</width></size></annotation>"
    )
    assert xml.head_content(FILENAME) == b"a.png"
    assert (xml.head_content(WIDTH), xml.head_content(HEIGHT)) == (b"8", b"7")


def test_an_absent_element_has_no_span_and_no_content() -> None:
    xml = parse_xml(b"<annotation><object/></annotation>")
    assert xml.span(0, NAME) == (ABSENT, ABSENT)
    assert xml.content(0, NAME) == b""


def test_a_self_closed_object_ends_with_its_tag() -> None:
    xml = parse_xml(b"<annotation><object/><object><name/></object><object a='/>'/></annotation>")
    texts = [xml.data[slice(*xml.span(k, OBJECT))] for k in range(len(xml))]
    assert texts == [b"<object/>", b"<object><name/></object>", b"<object a='/>'/>"]


def test_name_and_box_of_a_part_are_not_those_of_the_object() -> None:
    part = f"<part><name>head</name>{BOX_TEXT}</part>"
    own = BOX_TEXT.replace(">1<", ">9<")
    xml = parse_xml(
        f"<annotation><object>{part}<name>man</name>{own}</object></annotation>".encode()
    )
    assert (xml.content(0, NAME), xml.content(0, XMIN)) == (b"man", b"9")
    alone = parse_xml(f"<annotation><object>{part}</object></annotation>".encode())
    assert alone.span(0, NAME) == alone.span(0, XMIN) == alone.span(0, BOX) == (ABSENT, ABSENT)


def test_objects_count_only_as_children_of_the_outermost_element() -> None:
    xml = parse_xml(
        b"<annotation><group><object><name>a</name></object></group>"
        b"<object><object><name>b</name></object><name>c</name></object></annotation>"
    )
    assert len(xml) == 1
    assert xml.content(0, NAME) == b"c"


def test_of_repeated_elements_the_first_counts() -> None:
    second = BOX_TEXT.replace(">1<", ">7<")
    first = "<bndbox><ymin>2</ymin></bndbox>"
    names = "<name>a</name><name>b</name>"
    xml = parse_xml(f"<annotation><object>{names}{first}{second}</object></annotation>".encode())
    assert xml.content(0, NAME) == b"a"
    assert xml.span(0, XMIN) == (ABSENT, ABSENT)  # not taken from the second box
    assert sorted(xml.extras) == ["<bndbox> element", "<name> element"]


def test_attributes_with_angle_brackets_do_not_move_the_content() -> None:
    xml = parse_xml(
        b"""<annotation a='>'><object><name b=">" c='"/>'>dog</name></object></annotation>"""
    )
    assert xml.content(0, NAME) == b"dog"
    assert xml.head_span(ROOT)[0] == len("<annotation a='>'>")


def test_positions_are_right_beyond_the_first_megabyte() -> None:
    padding = b"<!--" + b"x" * 1_500_000 + b"-->"
    xml = parse_xml(b"<annotation>%s<object><name>dog</name></object></annotation>" % padding)
    assert xml.content(0, NAME) == b"dog"


def test_a_byte_order_mark_moves_all_positions_by_three() -> None:
    plain = parse_xml(b"<annotation><object><name>a</name></object></annotation>")
    marked = parse_xml(b"\xef\xbb\xbf<annotation><object><name>a</name></object></annotation>")
    assert marked.span(0, NAME)[0] == plain.span(0, NAME)[0] + 3
    assert patch_document(marked)[:4] == b"\xef\xbb\xbf<"


# Values


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        (b" \t\r\n12 \n", "12"),
        (b"cats &amp; dogs", "cats & dogs"),
        (b"&#65;&#x42;&lt;&gt;&quot;&apos;", "AB<>\"'"),
        (b"&amp;lt;", "&lt;"),
        (b"<![CDATA[a<b & c]]>", "a<b & c"),
        (b"<!-- 7 -->12<!-- 8 -->", "12"),
        (b"1<?p 9?>2", "12"),
        (b"a\r\nb\rc", "a\nb\nc"),
        ("kaffee&#252;\u4e2d".encode(), "kaffeeü中"),
        (b"<i a='>'>x</i>", "x"),
    ],
)
def test_decoded_content_is_the_text_of_a_parser(content: bytes, text: str) -> None:
    assert decode_text(content) == text


@given(st.text(st.characters(exclude_categories=["Cs"]).filter(is_writable)))
@example("a\rb\r\nc")
@settings(deadline=None)
def test_escaped_text_is_decoded_to_itself(text: str) -> None:
    assert decode_text(escape_xml(text).encode()) == text.strip(" \t\r\n")


# Edits


def test_only_the_text_between_comments_and_blanks_is_replaced() -> None:
    source = b"<annotation><object><name>\n <!-- cat? -->\tdog </name></object></annotation>"
    assert patch_document(parse_xml(source), {0: {NAME: "cow"}}) == source.replace(b"dog", b"cow")


def test_text_in_pieces_becomes_one() -> None:
    xml = parse_xml(
        b"<annotation><object><name>a<!--x-->b<![CDATA[c]]></name></object></annotation>"
    )
    new = patch_document(xml, {0: {NAME: "<&>"}})
    assert new == (b"<annotation><object><name>&lt;&amp;&gt;<!--x--></name></object></annotation>")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<name/>", "<name>cow</name>"),
        ("<name a='1' />", "<name a='1' >cow</name>"),
        ("<name></name>", "<name>cow</name>"),
        ("<name>\n</name>", "<name>cow\n</name>"),
        ("<name><!--?--></name>", "<name><!--?-->cow</name>"),
    ],
)
def test_an_empty_element_is_filled(old: str, new: str) -> None:
    xml = parse_xml(f"<annotation><object>{old}</object></annotation>".encode())
    assert patch_document(xml, {0: {NAME: "cow"}}).decode() == (
        f"<annotation><object>{new}</object></annotation>"
    )


def test_missing_elements_are_added_in_the_style_of_the_file() -> None:
    xml = parse_xml(
        b"<annotation>\r\n  <object>\r\n    <name>a</name>\r\n    <bndbox>\r\n"
        b"      <xmin>1</xmin>\r\n    </bndbox>\r\n  </object>\r\n</annotation>\r\n"
    )
    assert patch_document(xml, {0: {DIFFICULT: "1", YMIN: "2", XMIN: "5"}}) == (
        b"<annotation>\r\n  <object>\r\n    <name>a</name>\r\n    <bndbox>\r\n"
        b"      <xmin>5</xmin>\r\n      <ymin>2</ymin>\r\n    </bndbox>\r\n"
        b"    <difficult>1</difficult>\r\n  </object>\r\n</annotation>\r\n"
    )


def test_missing_coordinates_of_a_box_are_added() -> None:
    xml = parse_xml(b"<annotation><object/></annotation>")
    new = patch_document(xml, {0: {NAME: "a", XMIN: "1", YMIN: "2", XMAX: "3", YMAX: "4"}})
    assert new.decode() == (f"<annotation><object><name>a</name>{BOX_TEXT}</object></annotation>")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_removed_object_takes_its_lines_with_it(newline: str) -> None:
    lines = ["<annotation>", "\t<object>", "\t</object>  ", "\t<object/>", "</annotation>", ""]
    xml = parse_xml(newline.join(lines).encode())
    assert patch_document(xml, removed={0}).decode() == newline.join(lines[:1] + lines[3:])
    assert patch_document(xml, removed={1}).decode() == newline.join(lines[:3] + lines[4:])
    assert patch_document(xml, removed={0, 1}).decode() == newline.join(lines[:1] + lines[4:])


def test_a_removed_object_keeps_the_rest_of_its_line() -> None:
    xml = parse_xml(b"<annotation>\n <object/><!-- kept --> <object/>\n</annotation>")
    assert (
        patch_document(xml, removed={0}) == b"<annotation>\n <!-- kept --> <object/>\n</annotation>"
    )
    assert (
        patch_document(xml, removed={1}) == b"<annotation>\n <object/><!-- kept --> \n</annotation>"
    )


def test_an_added_object_comes_after_the_last_in_the_style_of_the_file() -> None:
    old = "<annotation>\n  <object>\n    <name>a</name>\n  </object>\n  <x/>\n</annotation>"
    new = patch_document(parse_xml(old.encode()), added=[new_object()]).decode()
    assert new == (
        "<annotation>\n  <object>\n    <name>a</name>\n  </object>\n"
        "  <object>\n    <name>dog</name>\n    <difficult>0</difficult>\n    <bndbox>\n"
        "      <xmin>1</xmin>\n      <ymin>2</ymin>\n      <xmax>3</xmax>\n      <ymax>4</ymax>\n"
        "    </bndbox>\n  </object>\n  <x/>\n</annotation>"
    )


def test_an_object_can_be_added_where_the_last_was_removed() -> None:
    xml = parse_xml(b"<annotation>\n\t<object>\n\t\t<name>a</name>\n\t</object> \n</annotation>")
    new = patch_document(xml, removed={0}, added=[{NAME: "b"}])
    assert new == b"<annotation>\n\t<object>\n\t\t<name>b</name>\n\t</object>\n</annotation>"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<annotation/>", "<annotation><object><name>b</name></object></annotation>"),
        ("<annotation></annotation>", "<annotation><object><name>b</name></object></annotation>"),
        (
            "<annotation>\n  <folder/>\n</annotation><!-- </annotation> -->",
            "<annotation>\n  <folder/>\n  <object>\n    <name>b</name>\n  </object>\n</annotation>"
            "<!-- </annotation> -->",
        ),
    ],
)
def test_an_object_can_be_added_to_a_file_without_any(old: str, new: str) -> None:
    assert patch_document(parse_xml(old.encode()), added=[{NAME: "b"}]).decode() == new


# Encodings


@pytest.mark.parametrize(
    ("codec", "declared"),
    [
        ("utf-16-le", "utf-16"),
        ("utf-16-be", "utf-16"),
        ("latin-1", "ISO-8859-1"),
        ("cp1252", "windows-1252"),
        ("gbk", "GBK"),
        ("shift_jis", "Shift_JIS"),
        ("ascii", "us-ascii"),
        ("utf-8", "utf8"),
    ],
)
def test_documents_keep_their_encoding(codec: str, declared: str) -> None:
    mark = "\ufeff" if codec.startswith("utf-16") else ""
    word = {"gbk": "狗", "shift_jis": "犬", "ascii": "dog"}.get(codec, "chien \xe9")
    text = (
        f"{mark}<?xml version='1.0' encoding='{declared}'?>\n<annotation><object>"
        f"<name>{word}</name><pose>Left</pose></object></annotation>"
    )
    source = text.encode(codec)
    xml = parse_xml(source)
    assert decode_text(xml.content(0, NAME)) == word
    assert patch_document(xml) == source
    assert patch_document(xml, {0: {POSE: "Right"}}) == text.replace("Left", "Right").encode(codec)


def test_characters_that_an_encoding_lacks_become_references() -> None:
    head = b"<?xml version='1.0' encoding='iso-8859-1'?>"
    xml = parse_xml(head + b"<annotation><object><name>\xe9</name></object></annotation>")
    new = patch_document(xml, {0: {NAME: "\xe9\u4e2d"}})
    assert new == head + b"<annotation><object><name>\xe9&#20013;</name></object></annotation>"
    assert decode_text(parse_xml(new).content(0, NAME)) == "\xe9\u4e2d"


def test_utf16_without_a_mark_is_detected_by_its_first_character() -> None:
    source = "<annotation><object><name>ä</name></object></annotation>".encode("utf-16-be")
    assert decode_text(parse_xml(source).content(0, NAME)) == "ä"


@pytest.mark.parametrize("name", ["unicode_escape", "idna", "rot13", "zip", "utf-7", "klingon"])
def test_encodings_that_no_text_file_has_are_refused(name: str) -> None:
    with pytest.raises(MalformedXmlError, match=f"{name}.*UTF-8"):
        parse_xml(f"<?xml version='1.0' encoding='{name}'?><annotation/>".encode())


def test_bytes_that_the_declared_encoding_does_not_have_are_refused() -> None:
    with pytest.raises(MalformedXmlError, match="ascii"):
        parse_xml(b"<?xml version='1.0' encoding='us-ascii'?><annotation>\xe9</annotation>")
    with pytest.raises(MalformedXmlError, match="utf-16-le"):
        parse_xml(b"\xff\xfe<\x00a")  # half a character
    with pytest.raises(MalformedXmlError, match="utf-16-le"):
        parse_xml("<annotation>\ud800</annotation>".encode("utf-16-le", "surrogatepass"))


def test_bytes_that_could_not_be_written_back_are_refused() -> None:
    twice = b"\x87\x90"  # a character that this encoding has at two places, here the second
    with pytest.raises(MalformedXmlError, match=r"byte for byte.*UTF-8"):
        parse_xml(b"<?xml version='1.0' encoding='cp932'?><annotation>" + twice + b"</annotation>")


# Hostile documents


def test_an_entity_bomb_is_refused_before_expansion() -> None:
    bomb = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 30))
    text = f'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a0 "ha">{bomb}]><annotation>&a29;'
    with pytest.raises(MalformedXmlError, match="DOCTYPE"):
        parse_xml(text.encode() + b"</annotation>")


def test_an_external_document_type_is_refused() -> None:
    with pytest.raises(MalformedXmlError, match="DOCTYPE"):
        parse_xml(b'<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>')


def test_deep_nesting_is_refused() -> None:
    assert len(parse_xml(b"<annotation>" + b"<a>" * 90 + b"</a>" * 90 + b"</annotation>")) == 0
    with pytest.raises(MalformedXmlError, match=str(MAX_DEPTH)):
        parse_xml(b"<annotation>" + b"<a>" * 1_000_000)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no xml",
        b"<annotation>",
        b"<annotation><object></annotation>",
        b"<annotation/><annotation/>",
        b"<annotation>&nbsp;</annotation>",
        b"<annotation>\xff</annotation>",
        b"\0",
        b"\x89PNG\r\n",
    ],
)
def test_what_is_not_xml_is_refused_with_its_position(content: bytes) -> None:
    with pytest.raises(MalformedXmlError, match=r"line \d+, column \d+"):
        parse_xml(content)


def test_xml_of_another_kind_is_refused() -> None:
    with pytest.raises(MalformedXmlError, match="<annotation>"):
        parse_xml(b"<annotations><image/></annotations>")


@given(
    st.lists(
        st.sampled_from(
            [
                *(b"<annotation>", b"</annotation>", b"<object>", b"</object>", b"<object/>"),
                *(b"<name>", b"</name>", b"<bndbox a='>'>", b"</bndbox>", b"<xmin/>", b"1", b"\n"),
                *(b"<!--", b"-->", b"<![CDATA[", b"]]>", b"&amp;", b"&#0;", b"\xff", b"<?x", b"?>"),
            ]
        )
        | st.binary(max_size=3),
        max_size=12,
    )
)
@settings(deadline=None)
def test_any_bytes_are_a_document_or_refused(pieces: list[bytes]) -> None:
    content = b"<annotation>" + b"".join(pieces) + b"</annotation>"
    try:
        xml = parse_xml(content)
    except MalformedXmlError:
        return
    assert patch_document(xml) == content
    everything = {k: {NAME: "n", DIFFICULT: "1", XMIN: "5", YMAX: "6"} for k in range(len(xml))}
    again = parse_xml(patch_document(xml, everything, added=[new_object()]))
    assert [decode_text(again.content(k, NAME)) for k in range(len(xml))] == ["n"] * len(xml)
    assert [decode_text(again.content(k, YMAX)) for k in range(len(xml))] == ["6"] * len(xml)
    assert decode_text(again.content(len(xml), NAME)) == "dog"
    assert len(parse_xml(patch_document(xml, removed=set(everything)))) == 0
