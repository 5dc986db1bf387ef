"""Tables of results: rows, columns, filters, and how they are shown."""

import builtins
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from boxmend.data.table import Table, make_table
from boxmend.errors import BoxmendError, UsageError

COLUMNS = {
    "kind": ["missing", "bad box", "missing", "spurious"],
    "p": [0.9, 0.8, 0.75, None],
    "row": [4, 7, 2, 0],
}
KINDS = ("bad box", "missing", "spurious", "duplicate")


@pytest.fixture
def table() -> Table:
    return make_table(COLUMNS, "fixes", {"kind": KINDS})


def test_a_table_has_rows_columns_and_slices(table: Table) -> None:
    assert len(table) == 4
    assert table.columns == ("kind", "p", "row")
    assert table[0] == {"kind": "missing", "p": 0.9, "row": 4}
    assert table[-1] == table[np.int64(3)] == {"kind": "spurious", "p": None, "row": 0}
    assert table["row"].tolist() == [4, 7, 2, 0]
    assert table[1:3]["row"].tolist() == [7, 2]
    assert table[::-2]["row"].tolist() == [0, 7]
    assert table[[3, 0]]["row"].tolist() == [0, 4]
    assert table[np.array([True, False, False, True])]["row"].tolist() == [4, 0]
    assert len(table[[]]) == 0
    assert [row["kind"] for row in table] == COLUMNS["kind"]


def test_rows_are_filtered_by_values_and_masks(table: Table) -> None:
    assert table.filter(kind="missing")["row"].tolist() == [4, 2]
    assert table.filter(kind={"missing", "spurious"}, row=2)["p"].tolist() == [0.75]
    assert table.filter(table["row"] > 3)["row"].tolist() == [4, 7]
    assert table.filter(table["row"] > 3, kind="bad box")["row"].tolist() == [7]
    assert len(table.filter(kind="duplicate")) == 0
    assert table.filter(p=None)["row"].tolist() == [0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "missing objects"}, "kind is 'missing objects'; expected bad box, missing,"),
        ({"colour": 1}, "the table has no column 'colour'; its columns are kind, p, row"),
        ({"row": "two"}, "row is 'two', but the column has values of type int64"),
    ],
)
def test_a_filter_that_can_match_nothing_is_refused(
    table: Table, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        table.filter(**wrong)


@pytest.mark.parametrize("mask", [[True], [1, 0, 1, 0], "missing"])
def test_a_mask_has_one_bool_for_each_row(table: Table, mask: Any) -> None:
    with pytest.raises(UsageError, match="expected one bool for each of the 4 rows"):
        table.filter(mask)


@pytest.mark.parametrize("row", [4, -5])
def test_a_row_beyond_the_end_is_an_index_error(table: Table, row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of a table with 4 rows"):
        table[row]
    with pytest.raises(IndexError):
        table[[0, row]]


def test_a_dictionary_column_is_filtered_and_read_as_text() -> None:
    column = pa.array(["kept", "moved", "kept"]).dictionary_encode()
    table = make_table({"verdict": column}, "visits")
    assert len(table.filter(verdict="kept")) == 2
    assert table["verdict"].tolist() == ["kept", "moved", "kept"]


def test_a_table_becomes_arrow_and_pandas(table: Table) -> None:
    assert table.to_arrow().column_names == list(COLUMNS)
    assert pa.table(table).equals(table.to_arrow())  # by the Arrow protocol, as in Polars
    frame = table.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["row"].tolist() == [4, 7, 2, 0]


def test_without_pandas_a_message_says_what_to_install(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name="pandas")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BoxmendError, match="pip install pandas; to_arrow works without it"):
        table.to_pandas()


def test_a_long_table_is_shown_in_ten_lines() -> None:
    columns = {f"column {k}": [f"value {k}\nof row {row}" for row in range(50)] for k in range(9)}
    lines = repr(make_table(columns, "things")).splitlines()
    assert len(lines) <= 10
    assert lines[0] == "50 things"
    assert lines[2].startswith("value 0 of row 0")
    assert lines[-1].endswith("45 more rows")
    assert max(map(len, lines)) <= 110


def test_texts_of_a_page_are_escaped() -> None:
    hostile = "<script>alert('x')</script>"
    html = make_table({hostile: [hostile, "a" * 500] * 9}, hostile)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<tr>") == 11  # the head and ten rows
    assert "8 more rows" in html
    assert "a" * 100 not in html


def test_an_empty_table_is_shown() -> None:
    table = make_table({"kind": pa.array([], pa.string())}, "fixes")
    assert repr(table) == "0 fixes\nkind"
    assert "0 fixes" in table._repr_html_()
    assert table["kind"].tolist() == []
