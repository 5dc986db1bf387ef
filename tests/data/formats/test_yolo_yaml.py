"""data.yaml: its values, and patches that change only these values."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data.formats.yolo import yaml_nodes
from boxmend.data.formats.yolo.data_yaml import (
    OutputPaths,
    compose_yaml,
    parse_yaml,
    patch_yaml,
    read_yaml,
)
from boxmend.errors import BoxmendError, DataError

PATH = Path("data.yaml")
PATHS = OutputPaths({"train": ("images/train",), "val": ("images/val",)})
COMMENTED = b"""# Helmets, v3
path: ../datasets/helmets  # dataset root
train: images/train2017  # 118 images
val: "images/val2017"
test:  # none yet

nc: 2
names:
  0: helmet
  1: head  # without
download: https://example.org/helmets.zip
"""


@pytest.fixture(params=["c", "python"])
def _either_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with the C parser, if it is there, and with the Python one."""
    if request.param == "python":
        monkeypatch.setattr(yaml_nodes, "LOADER", yaml.SafeLoader)


def names_of(data: bytes) -> tuple[str, ...]:
    return parse_yaml(PATH, data).names


def patch_document(
    data: bytes, paths: OutputPaths | None = None, added: tuple[str, ...] = ()
) -> bytes:
    document = parse_yaml(PATH, data)
    return patch_yaml(document, paths or PATHS, (*document.names, *added))


def test_paths_and_names_are_read_as_written() -> None:
    document = parse_yaml(PATH, COMMENTED)
    assert document.root == "../datasets/helmets"
    assert document.splits == {"train": ("images/train2017",), "val": ("images/val2017",)}
    assert document.names == ("helmet", "head")
    assert document.findings == ()


@pytest.mark.parametrize(
    "data",
    [
        b"names: [a, b c]",
        b"names: ['a', \"b c\"]",
        b"names:\n- a\n- b c\n",
        b"names:\n  - a\n  - b c\n",
        b"names: {0: a, 1: b c}",
        b"names:\n  1: b c\n  0: a\n",
        b"nc: 2\nnames: {'0': a, '1': b c}",
        b"x: &n [a, b c]\nnames: *n\n",
        b"\xef\xbb\xbfnames: [a, b c]\r\n",
    ],
)
@pytest.mark.usefixtures("_either_parser")
def test_names_may_be_a_list_or_a_map(data: bytes) -> None:
    assert names_of(data) == ("a", "b c")


def test_names_stay_words_where_yaml_sees_booleans_nulls_and_numbers() -> None:
    assert names_of(b"names: [no, null, 1.0, on, 2024-01-01]") == (
        "no", "null", "1.0", "on", "2024-01-01",
    )  # fmt: skip


def test_without_names_the_numbers_below_nc_are_the_names() -> None:
    assert names_of(b"nc: 3") == ("0", "1", "2")


def test_a_count_that_differs_from_the_names_is_a_finding_with_its_line() -> None:
    (finding,) = parse_yaml(PATH, b"names: [a, b]\nnc: 3\n").findings
    assert (finding.kind, finding.file) == ("malformed", "data.yaml")
    assert finding.message == "line 2: nc is 3, but names has 2 names"


def test_splits_may_be_lists_and_come_in_a_fixed_order() -> None:
    document = parse_yaml(PATH, b"test: c\nvalidation: [b]\ntrain: [a, 'x/y']\nnc: 1\n")
    assert list(document.splits.items()) == [
        ("train", ("a", "x/y")),
        ("val", ("b",)),
        ("test", ("c",)),
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected keys"),
        (b"- a\n- b\n", "expected keys"),
        (b"just words", "expected keys"),
        (b"names: [a\nval: x\n", "line 2: not valid YAML"),
        (b"a: b: c\n", "line 1: not valid YAML"),
        (b"names: \xff\n", "not UTF-8 at byte 7"),
        (b"names: [a]\n---\nnames: [b]\n", "a second document"),
        (b"names: *nobody\n", "unknown anchor 'nobody'"),
        (b"names: &a [*a]\n", "unknown anchor 'a'"),
        (b"<<: {train: x}\nnames: [a]\n", "line 1: merged keys (<<)"),
        (b"train: x\n", "neither names nor nc"),
        (b"train: x\nnc: many\n", "neither names nor nc"),
        (b"nc: 99999999999999999999\n", "neither names nor nc"),
        (b"nc: 3000000\n", "neither names nor nc"),
        (b"names: helmet\n", "line 1: names must be a list or a map"),
        (
            b"names:\n  0: a\n  2: b\n",
            "line 2: names has no number 1; number the names from 0 to 1",
        ),
        (b"names: {0: a, 0: b}\n", "names has '0' twice"),
        (b"names: {a: 0, b: 1}\n", "names has no number 0"),
        (b"names: [a, [b]]\n", "line 1: name 1 must be a text"),
        (b"names: {0: a, 1: }\n", "name 1 must be a text"),
        (b"train: {a: b}\nnames: [a]\n", "line 1: train must be a path"),
        (b'train: "a\\0b"\nnames: [a]\n', "line 1: train must be a path"),
        (b"path: [a, b]\nnames: [a]\n", "line 1: path must be one path"),
        (b'names: ["\\U99999999"]\n', "not valid YAML"),
        (b'names: ["\\ud800"]\n', "not valid YAML"),
        (b"names: " + b"[" * 100_000, "not valid YAML"),
        (b"names: " + b"- " * 100_000, "not valid YAML"),
    ],
)
@pytest.mark.usefixtures("_either_parser")
def test_invalid_values_are_reported_with_their_line(data: bytes, expected: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_yaml(PATH, data)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("data.yaml")


def test_a_file_of_many_megabytes_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_bytes(b"#" * (2**24 + 1))
    with pytest.raises(DataError, match=r"data\.yaml: .*more than the limit of 16,777,216"):
        read_yaml(tmp_path / "data.yaml")


@pytest.mark.usefixtures("_either_parser")
def test_an_alias_bomb_is_never_expanded() -> None:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 40)]
    bomb = "\n".join(lines)
    start = time.perf_counter()
    assert names_of(f"{bomb}\nnames: [a]\n".encode()) == ("a",)
    with pytest.raises(DataError, match="name 0 must be a text"):
        names_of(f"{bomb}\nnames: *a39\n".encode())
    assert time.perf_counter() - start < 2


# Patching


@pytest.mark.usefixtures("_either_parser")
def test_only_the_paths_are_replaced_and_comments_stay() -> None:
    assert patch_document(COMMENTED) == COMMENTED.replace(b"../datasets/helmets", b"null").replace(
        b"images/train2017", b"images/train"
    ).replace(b'"images/val2017"', b"images/val")
    mark = b"\xef\xbb\xbf"
    assert patch_document(mark + COMMENTED) == mark + patch_document(COMMENTED)


@pytest.mark.parametrize(
    "data",
    [
        b"train: images/train\nval: images/val\nnames: [a]",
        b"path: .\ntrain: ./images/train/\nval: [images/val] # x\nnames: [a]\n",
        b"path:\ntrain: 'images/train'\r\nval: images/val\r\nnames: [a]\r\n",
        b"\xef\xbb\xbftrain: images/train\nval:\n- images/val\nnames: [a]\n",
        b"train: &t images/train\nval: images/val\nx: *t\nnames: [a]\n",
    ],
)
def test_a_document_with_these_values_keeps_every_byte(data: bytes) -> None:
    assert patch_document(data) == data


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"train: a # x\nval: b", b"train: images/train # x\nval: images/val"),
        (b"train: [a, b]\nval: [c]", b"train: [images/train]\nval: [images/val]"),
        (
            b"train:\n- a  # x\n- b  # y\nval:\n    - c\n",
            b"train:\n- images/train  # y\nval:\n    - images/val\n",
        ),
        (b"train: >\n  a\nval: b\n", b"train: images/train\nval: images/val\n"),
        (b"train: &t a\nval: *t\nx: *t", b"train: &t images/train\nval: images/val\nx: *t"),
        (b"train: &t images/train\nval: *t", b"train: &t images/train\nval: images/val"),
        (b"train: a\ntest: b\nval: b", b"train: images/train\ntest: null\nval: images/val"),
        (b"test:\n- b\ntrain: a\nval: b", b"test:\n []\ntrain: images/train\nval: images/val"),
        (b"'train': a\r\n? val\r\n: b\r\n", b"'train': images/train\r\n? val\r\n: images/val\r\n"),
        (
            b"path: /data/\xc3\xa9\ntrain: a\nval: b",
            b"path: null\ntrain: images/train\nval: images/val",
        ),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("_either_parser")
def test_paths_are_replaced_in_the_style_they_have(before: bytes, after: bytes) -> None:
    assert patch_document(before + b"\nnames: [a]\n") == after + b"\nnames: [a]\n"
    assert patch_document(b"# \xf0\x9f\x98\x80\nnames: [a]\n" + before) == (
        b"# \xf0\x9f\x98\x80\nnames: [a]\n" + after
    )


def test_a_document_on_one_line_is_patched_too() -> None:
    assert patch_document(b"{path: /x, train: a, test: c, val: b, names: [a]}") == (
        b"{path: null, train: images/train, test: null, val: images/val, names: [a]}"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"names: [a, b]", b"names: [a, b, new one, 'no']"),
        (b"names: [a, b,]", b"names: [a, b, new one, 'no',]"),
        (b"names: {0: a, 1: b}", b"names: {0: a, 1: b, 2: new one, 3: 'no'}"),
        (b"names:\n- a\n- b # x", b"names:\n- a\n- b # x\n- new one\n- 'no'"),
        (b"names:\n  - a\n  - b", b"names:\n  - a\n  - b\n  - new one\n  - 'no'"),
        (b"names:\n  0: a\n  1: b", b"names:\n  0: a\n  1: b\n  2: new one\n  3: 'no'"),
        (b"names: []\nnc: 0", b"names: [new one, 'no']\nnc: 2"),
        (b"names: {}", b"names: {0: new one, 1: 'no'}"),
        (b"x: &x [a]\nnames: *x", b"x: &x [a]\nnames:  {0: a, 1: new one, 2: 'no'}"),
        (b"nc: 1", b"nc: 3\nnames: {0: '0', 1: new one, 2: 'no'}"),
        (b"names:\nnc: 1", b"names: {0: '0', 1: new one, 2: 'no'}\nnc: 3"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("_either_parser")
def test_new_names_are_appended_in_the_style_of_the_others(before: bytes, after: bytes) -> None:
    after = after.replace(b"'", b'"')
    for start in (b"", b"train: images/train\nval: images/val\n"):
        for end in (b"", b"\n"):
            assert (
                patch_document(start + before + end, added=("new one", "no")) == start + after + end
            )
    windows = patch_document(before.replace(b"\n", b"\r\n") + b"\r\n", added=("new one", "no"))
    assert windows == after.replace(b"\n", b"\r\n") + b"\r\n"


def test_a_document_too_unusual_to_patch_is_refused_with_a_remedy() -> None:
    with pytest.raises(DataError, match="an unusual form that cannot be changed in place"):
        patch_document(b"{train: a, val: b, nc: 1}", added=("c",))


AWKWARD = ["no", "a b", "1.0", "", " a", "a: b", "#x", "é", "😀", '"', "'", "a\nb", "-", "a,b", "~"]


@given(
    st.lists(
        st.one_of(
            st.sampled_from([name for name in AWKWARD if name]),
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
        ),
        max_size=6,
    )
)
def test_any_names_are_read_back(names: list[str]) -> None:
    composed = compose_yaml(OutputPaths(dict.fromkeys(("train", "val"), ("images/train",))), names)
    document = parse_yaml(PATH, composed)
    assert document.names == tuple(names)
    assert document.splits == {"train": ("images/train",), "val": ("images/train",)}
    if names:
        plain = yaml.safe_load(composed)["names"]  # what other readers see
        assert plain == dict(enumerate(names))
    for before in (b"names: [x]\n", b"names:\n- x\n", b"names: {0: x}\n", b"names:\n  0: x"):
        assert names_of(patch_document(before, added=tuple(names))) == ("x", *names)


SNIPPETS = [
    b"path: ", b"train: ", b"val: ", b"names: ", b"nc: ", b"\n", b"  ", b"- ", b"[", b"]", b"{",
    b"}", b", ", b": ", b"&a ", b"*a", b"'", b'"', b"|\n", b">", b"#", b"\r\n", b"a", b"0", b"2",
    b"!!str ", b"<<: ", b"---\n", b"%YAML 1.1\n", b"? ", b"\xc3\xa9", b"\xff", b"\x00", b"\t",
]  # fmt: skip


@given(st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(SNIPPETS)).map(b"".join)))
def test_no_bytes_end_in_anything_but_a_boxmend_error(data: bytes) -> None:
    names: tuple[str, ...]
    message = "data.yaml"
    try:
        document = parse_yaml(PATH, data)
        names = (*document.names, "new")
        result = patch_yaml(document, PATHS, names)
    except BoxmendError as error:
        message, names, result = str(error), ("new",), b"names: [new]"
    assert message.startswith("data.yaml")
    assert parse_yaml(PATH, result).names == names
