"""Files that hold a confusion matrix, right and wrong ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.noise.labels import read_confusion
from boxmend.errors import UsageError

Write = Callable[..., Path]
NAMES = ("car", "van", "truck")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes, name: str = "m.json") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


def test_json_names_only_what_changes(write: Write) -> None:
    path = write('{"van": {"truck": 0.4, "car": 0.1}, "car": {}}')
    assert read_confusion(path, NAMES) == {0: {}, 1: {0: 0.1, 2: 0.4}}


def test_json_may_name_the_share_that_stays_if_the_row_then_adds_up_to_one(write: Write) -> None:
    assert read_confusion(write('{"van": {"van": 0.6, "car": 0.4}}'), NAMES) == {1: {0: 0.4}}
    with pytest.raises(UsageError, match=r"'van' add up to 0.9, not to 1"):
        read_confusion(write('{"van": {"van": 0.5, "car": 0.4}}'), NAMES)


def test_csv_has_names_in_the_first_row_and_column(write: Write) -> None:
    path = write("\ufefffrom,van, car\ncar,0.25,0.75\nvan,1,0\n", "m.csv")
    assert read_confusion(path, NAMES) == {0: {1: 0.25}, 1: {0: 0.0}}


def test_the_order_of_the_file_does_not_matter(write: Write) -> None:
    one = read_confusion(write('{"van": {"truck": 0.4, "car": 0.1}, "car": {"van": 1}}'), NAMES)
    two = read_confusion(write('{"car": {"van": 1}, "van": {"car": 0.1, "truck": 0.4}}'), NAMES)
    assert list(one) == list(two) == [0, 1]
    assert [list(row) for row in one.values()] == [list(row) for row in two.values()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"bus": {"car": 0.4}, "van": {"lorry": 0.1}}', r"'bus', 'lorry'; it has 'car', 'van'"),
        ('{"van": {"car": 1.5}}', r"'van' to 'car' is 1.5, expected 0 to 1"),
        ('{"van": {"car": -0.1}}', r"'van' to 'car' is -0.1"),
        ('{"van": {"car": 0.7, "truck": 0.7}}', r"'van' add up to 1.4, not to at most 1"),
        ('{"van": {"car": 0.1, "car": 0.2}}', r"'car' appears twice"),
        ('{"van": {}, "van": {}}', r"'van' appears twice"),
        ('{"van": {"car": "0.4"}}', r"like .*truck.*0.4"),
        ('{"van": 0.4}', r"not a label matrix"),
        ('{"van": {"car": true}}', r"not a label matrix"),
        ('{"van": {"car": 0.4}', r"not a label matrix"),
        ('{"van": {"car": 1e999}}', r"m\.json"),
        ('{"van": {"car": NaN}}', r"not a label matrix"),
        ("[" * 100_000, r"not a label matrix"),
        ('{"van": ' * 100_000, r"not a label matrix"),
        (b'{"\xff": {}}', r"not UTF-8"),
        ("", r"not a label matrix"),
    ],
)
def test_wrong_json_is_refused_with_a_reason(
    write: Write, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_confusion(write(content), NAMES)
    assert "m.json" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (",car,van\ncar,0.5,0.4\n", r"'car' add up to 0.9, not to 1"),
        (",car,van\ncar,0.5\n", r"row 'car' has 1 numbers for 2 labels"),
        (",car,van\ncar,0.5,half\n", r"row 'car' holds 'half', which is not a number"),
        (",car,van\ncar,nan,0.5\n", r"'car' to 'car' is nan"),
        (",car,car\ncar,0.5,0.5\n", r"'car' appears twice"),
        (",car,van\ncar,1,0\ncar,0,1\n", r"'car' appears twice"),
        (",car,bus\ncar,1,0\n", r"no such label in the dataset: 'bus'"),
        (",car,van\n", r"one row per label"),
        ("", r"one row per label"),
        (',"car\n', r"not a CSV table"),
        (",car\n" + "x" * 200_000 + ",1\n", r"not a CSV table"),
    ],
)
def test_wrong_csv_is_refused_with_a_reason(write: Write, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_confusion(write(content, "m.csv"), NAMES)
    assert "m.csv" in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json: .*No such file"):
        read_confusion(tmp_path / "none.json", NAMES)
    with pytest.raises(UsageError, match="a folder, not a regular file"):
        read_confusion(tmp_path, NAMES)
    with pytest.raises(UsageError, match="cannot be read"):
        read_confusion(tmp_path / "a\0b", NAMES)


def test_a_file_too_large_to_be_a_matrix_is_refused_unread(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_SETTINGS_BYTES", "1MiB")
    with pytest.raises(UsageError, match="BOXMEND_MAX_SETTINGS_BYTES to at least 1048578"):
        read_confusion(write(" " * 2**20 + "{}"), NAMES)


def test_a_name_that_several_labels_share_is_refused_only_where_it_is_used(write: Write) -> None:
    names = ("car", "van", "car")
    assert read_confusion(write('{"van": {}}'), names) == {1: {}}
    with pytest.raises(UsageError, match="several labels of the dataset are called 'car'"):
        read_confusion(write('{"van": {"car": 0.5}}'), names)


@settings(max_examples=150)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text('{}[]:,"carvn01.5eN-\n', max_size=60).map(str.encode),
        st.text(",carvn01.5e-\n\"' ", max_size=60).map(str.encode),
    ),
    st.sampled_from(["m.json", "m.csv"]),
)
def test_any_content_gives_a_matrix_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    try:
        confusion, message = read_confusion(path, NAMES), name
    except UsageError as error:
        confusion, message = {}, str(error)
    assert name in message
    assert all(0 <= sum(row.values()) <= 1.001 for row in confusion.values())
