"""Lines of label files: hand-computed pixels, and patches that change only the values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.dataset import UNKNOWN
from boxmend.data.formats.yolo.labels import (
    Change,
    Labels,
    Rules,
    format_line,
    parse_labels,
    patch_labels,
)
from boxmend.data.types import Box

RULES = Rules(3)
SIZE = (200, 100)


def parse_lines(
    content: bytes, size: tuple[int, int] | None = SIZE, rules: Rules = RULES
) -> Labels:
    return parse_labels(content, size, rules)


def kinds(labels: Labels) -> list[tuple[str, int]]:
    return [(problem.kind, problem.position) for problem in labels.problems]


def test_shares_become_pixels() -> None:
    result = parse_lines(b"1 0.5 0.25 0.25 0.5\n0 0.75 0.5 0.5 1\n")
    assert result.labels == [1, 0]
    # cx 100, w 50 -> 75..125; cy 25, h 50 -> 0..50; then cx 150, w 100 -> 100..200; cy 50, h 100
    assert result.boxes == [75, 0, 125, 50, 100, 0, 200, 100]
    assert result.problems == []


@pytest.mark.parametrize(
    "content",
    [
        b"2 .5 .5 .1 .2",
        b"2 .5 .5 .1 .2\n",
        b"2\t.5  .5 .1 .2   \r\n",
        b"\n\n 2 .5 .5 .1 .2\n\n",
        b"\xef\xbb\xbf2 .5 .5 .1 .2\r",
        b"2.0 5e-1 0.50 +.1 .2",
    ],
)
def test_spaces_blank_lines_and_notations_do_not_matter(content: bytes) -> None:
    result = parse_lines(content)
    assert result.labels == [2]
    assert result.boxes == pytest.approx([90, 40, 110, 60])
    assert result.problems == []


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\t", b"\xef\xbb\xbf"])
def test_a_file_without_lines_has_no_annotations(content: bytes) -> None:
    assert parse_lines(content).labels == []


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (b"0", "malformed", "1 values"),
        (b"0 .5 .5 .1", "malformed", "4 values"),
        (b"0 .5 .5 .1 .2 .9", "malformed", "6 values"),
        (b"0 .5 .5 .1 .2 .9 .9 .9", "malformed", "8 values"),
        (b"0 .5 .5 .1 wide", "malformed", "not numbers: '.5 .5 .1 wide'"),
        (b"0 .5 .5 .1 1_0", "malformed", "not numbers"),
        (b"0 .5,.5,.1,.2 1 1 1", "malformed", "not numbers"),
        (b"0 .5 .5 \xff .1", "malformed", "\\xff"),
        (b"0 nan .5 .1 .2", "box-not-finite", "nan"),
        (b"0 .5 inf .1 .2", "box-not-finite", "inf"),
        (b"0 .5 .5 1e999 .2", "box-not-finite", "1e999"),
        (b"0 .5 .5 1e308 .2", "box-not-finite", "too large"),
        (b"0 0 0 1 0 1 1", "malformed", "a polygon of 3 points; pass --polygons box"),
    ],
)
def test_a_line_without_a_box_keeps_its_place_and_is_reported(
    line: bytes, kind: str, expected: str
) -> None:
    result = parse_lines(b"\n1 .5 .5 .1 .2\n\n" + line + b"\n2 .5 .5 .1 .2\n")
    assert result.labels == [1, 0, 2]
    assert [math.isnan(value) for value in result.boxes] == [False] * 4 + [True] * 4 + [False] * 4
    (problem,) = result.problems
    assert (problem.kind, problem.position) == (kind, 1)
    assert problem.message.startswith("line 4: ")
    assert expected in problem.message


@pytest.mark.parametrize(
    "token", [b"3", b"-1", b"0.5", b"dog", b"nan", b"1e400", b"0_1", b"9" * 5000, b"\xff"]
)
def test_a_class_that_is_not_declared_keeps_its_box(token: bytes) -> None:
    result = parse_lines(token + b" .5 .5 .1 .2")
    assert result.labels == [UNKNOWN]
    assert result.boxes == pytest.approx([90, 40, 110, 60])
    assert kinds(result) == [("unknown-category", 0)]
    assert len(result.problems[0].message) < 200


def test_a_polygon_is_read_as_the_box_around_it_if_asked() -> None:
    rules = Rules(3, takes_polygons=True)
    result = parse_lines(b"1 .5 .1 .7 .4 .3 .2\n0 .1 .1 .2 .1 .2 .3 .1 .3\n", rules=rules)
    assert result.boxes == pytest.approx([60, 10, 140, 40, 20, 10, 40, 30])
    assert (result.problems, result.num_polygons) == ([], 2)


def test_keypoints_are_not_read_as_polygons() -> None:
    rules = Rules(3, takes_polygons=True, has_keypoints=True)
    result = parse_lines(b"1 .5 .5 .1 .2 .3 .3", rules=rules)
    assert kinds(result) == [("malformed", 0)]
    assert "keypoints" in result.problems[0].message


def test_without_a_size_boxes_are_unknown_but_not_wrong() -> None:
    result = parse_lines(b"1 .5 .5 .1 .2\n0 nan 0 0 0", size=None)
    assert all(map(math.isnan, result.boxes))
    assert kinds(result) == [("box-not-finite", 1)]


# Patching

CONTENT = b"0 0.5 0.25 0.25 0.5  \r\n\r\n1\t0.750000 0.5 0.5 1.0 "


def patch_lines(
    content: bytes, label: int | None = None, box: Box | None = None, position: int = 0
) -> bytes:
    return patch_labels(content, SIZE, {position: Change(label, box)})


def test_a_changed_label_replaces_only_its_token() -> None:
    assert patch_lines(CONTENT, label=2) == b"2" + CONTENT[1:]
    assert patch_lines(CONTENT, label=10, position=1) == CONTENT.replace(b"1\t", b"10\t")
    assert patch_lines(b"\xef\xbb\xbf0 .5 .5 .1 .1", label=1) == b"\xef\xbb\xbf1 .5 .5 .1 .1"
    assert patch_lines(b"0.0 .5 .5 .1 .1", label=1) == b"1 .5 .5 .1 .1"


def test_a_changed_box_replaces_only_the_numbers_that_differ() -> None:
    # 75..125 becomes 75..135: cx 105/200, w 60/200; rows stay
    assert patch_lines(CONTENT, box=(75, 0, 135, 50)) == CONTENT.replace(
        b"0.5 0.25 0.25 0.5 ", b"0.525 0.25 0.3 0.5 "
    )
    # 100..200 and 0..100 moved up by 10: cy 0.4 alone
    assert patch_lines(CONTENT, box=(100, -10, 200, 90), position=1) == CONTENT.replace(
        b"0.750000 0.5 0.5", b"0.750000 0.4 0.5"
    )


def test_new_numbers_have_six_decimals_or_as_many_as_their_line() -> None:
    third = (200 / 3 - 10, 40, 200 / 3 + 10, 60)
    assert patch_lines(b"0 .5 .5 .1 .2", box=third) == b"0 0.333333 .5 .1 .2"
    assert patch_lines(b"0 .5 .5000000000 .1 .2", box=third) == b"0 0.3333333333 .5000000000 .1 .2"


@pytest.mark.parametrize("size", [(60_000, 60_000), (60_000, 10)])
def test_large_images_get_the_decimals_they_need(size: tuple[int, int]) -> None:
    box = (20_000.01, 0, 20_001.01, size[1])
    result = patch_labels(b"0 .5 .5 .1 1", size, {0: Change(None, box)})
    assert parse_lines(result, size).boxes == pytest.approx(list(box), abs=0.01)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"1 0 0 1 0 1 1\r\n", b"1 0.5 0.5 0.1 0.2\r\n"),
        (b"1  .5 .5 .1 .2 .9 ", b"1 0.5 0.5 0.1 0.2 "),
        (b"1 nan .5 .1 .2", b"1 0.5 0.5 0.1 0.2"),
        (b"1 a b c d", b"1 0.5 0.5 0.1 0.2"),
        (b" 1\n", b" 1 0.5 0.5 0.1 0.2\n"),
    ],
)
def test_a_line_without_a_box_gets_one(line: bytes, expected: bytes) -> None:
    assert patch_lines(line, box=(90, 40, 110, 60)) == expected


def test_a_removed_line_takes_its_line_end_with_it() -> None:
    assert patch_labels(CONTENT, SIZE, {0: None}) == CONTENT[CONTENT.index(b"\r\n") + 2 :]
    assert patch_labels(CONTENT, SIZE, {1: None}) == CONTENT[: CONTENT.index(b"1\t")]
    assert patch_labels(b"0 1 1 1 1", SIZE, {0: None}) == b""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", b"NEW\nNEW\n"),
        (b"0 1 1 1 1\n", b"0 1 1 1 1\nNEW\nNEW\n"),
        (b"0 1 1 1 1", b"0 1 1 1 1\nNEW\nNEW"),
        (b"0 1 1 1 1\r\n", b"0 1 1 1 1\r\nNEW\r\nNEW\r\n"),
        (b"0 1 1 1 1\r\n1 1 1 1 1", b"0 1 1 1 1\r\n1 1 1 1 1\r\nNEW\r\nNEW"),
        (b"\xef\xbb\xbf", b"\xef\xbb\xbfNEW\nNEW\n"),
    ],
)
def test_added_lines_come_last_in_the_newlines_of_the_file(content: bytes, expected: bytes) -> None:
    added = [(1, (90.0, 40.0, 110.0, 60.0))] * 2
    result = patch_labels(content, SIZE, {}, added)
    assert result == expected.replace(b"NEW", b"1 0.5 0.5 0.1 0.2")


def test_a_line_added_after_the_last_one_was_removed_needs_no_newline_before_it() -> None:
    added = [(1, (90.0, 40.0, 110.0, 60.0))]
    result = patch_labels(b"0 1 1 1 1\n2 1 1 1 1", SIZE, {1: None}, added)
    assert result == b"0 1 1 1 1\n1 0.5 0.5 0.1 0.2"


def test_new_lines_keep_a_thousandth_of_a_pixel() -> None:
    box = (1 / 3, 2 / 3, 100_000 / 7, 90_000.123)
    result = parse_lines(format_line(2, box, (100_000, 100_000)), (100_000, 100_000))
    assert result.labels == [2]
    assert result.boxes == pytest.approx(box, abs=0.001)


# Properties

spaces = st.sampled_from([b" ", b"  ", b"\t", b" \t "])
ends = st.sampled_from([b"\n", b"\r\n", b" \n", b"\n\n", b"\r\n \r\n"])
shares = st.floats(0, 1).flatmap(
    lambda value: st.sampled_from([f"{value:.6f}", f"{value:.2f}", repr(value), f"{value:e}"])
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    values = [str(draw(st.integers(0, 2))), *(draw(shares) for _ in range(4))]
    line: bytes = draw(spaces).join(value.encode() for value in values)
    return line


@st.composite
def files(draw: st.DrawFn) -> bytes:
    body = b"".join(line + draw(ends) for line in draw(st.lists(lines(), min_size=1, max_size=5)))
    return body if draw(st.booleans()) else body.rstrip()


@given(files(), st.data(), st.integers(1, 20_000), st.integers(1, 20_000))
def test_a_patch_changes_the_expected_tokens_and_no_other_byte(
    content: bytes, data: st.DataObject, width: int, height: int
) -> None:
    size = (width, height)
    before = parse_lines(content, size)
    n = len(before.labels)
    chosen = data.draw(st.sets(st.integers(0, n - 1)))
    xs, ys = st.floats(0, width), st.floats(0, height)
    boxes = {position: data.draw(st.tuples(xs, ys, xs, ys)) for position in chosen}
    result = patch_labels(content, size, {k: Change(2, boxes[k]) for k in chosen})
    after = parse_lines(result, size)
    for position in range(n):
        here = slice(4 * position, 4 * position + 4)
        if position in chosen:
            assert after.labels[position] == 2
            assert after.boxes[here] == pytest.approx(boxes[position], abs=0.01)
        else:
            assert after.labels[position] == before.labels[position]
            assert after.boxes[here] == before.boxes[here]
    assert _skeleton(result) == _skeleton(content)
    old, new = _token_lines(content), _token_lines(result)
    assert [old[k] for k in range(n) if k not in chosen] == [
        new[k] for k in range(n) if k not in chosen
    ]


@given(files(), st.data(), st.integers(1, 20_000))
def test_a_side_that_moves_leaves_the_numbers_of_the_other_axis(
    content: bytes, data: st.DataObject, width: int
) -> None:
    size = (width, 77)
    before = parse_lines(content, size)
    _, y1, x2, y2 = before.boxes[:4]
    box = (data.draw(st.floats(0, width)), y1, x2, y2)
    result = patch_labels(content, size, {0: Change(None, box)})
    assert _skeleton(result) == _skeleton(content)
    old, new = _token_lines(content), _token_lines(result)
    assert [old[0][k] for k in (0, 2, 4)] == [new[0][k] for k in (0, 2, 4)]
    assert old[1:] == new[1:]


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_line_by_line_and_patched(content: bytes, takes_polygons: bool) -> None:
    result = parse_lines(content, rules=Rules(3, takes_polygons))
    assert len(result.boxes) == 4 * len(result.labels)
    n = len(result.labels)
    assert patch_labels(content, SIZE, {}) == content
    box = (90.0, 40.0, 110.0, 60.0)
    after = parse_lines(patch_labels(content, SIZE, dict.fromkeys(range(n), Change(1, box))))
    assert after.labels == [1] * n
    assert after.boxes == pytest.approx(box * n, abs=0.01)
    assert parse_lines(patch_labels(content, SIZE, dict.fromkeys(range(n)))).labels == []


def _token_lines(content: bytes) -> list[list[bytes]]:
    return [line.split() for line in content.splitlines() if line.strip()]


def _skeleton(content: bytes) -> bytes:
    """Return the separators of a line, with an x for each token."""
    is_space = [byte in b" \t\r\n" for byte in content]
    kept = bytearray()
    for k, byte in enumerate(content):
        if is_space[k]:
            kept.append(byte)
        elif k == 0 or is_space[k - 1]:
            kept += b"x"
    return bytes(kept)
