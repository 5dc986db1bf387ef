"""Digests in files: damage is noticed, and files without a digest give a warning."""

import hashlib
import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boxmend.data.files import digests
from boxmend.data.files.digests import (
    DamagedError,
    add_json_digest,
    encode_parquet,
    read_verified_parquet,
    split_json_digest,
    verify_json,
    verify_json_lines,
)
from boxmend.errors import DataError

TABLE = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})


def notes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == digests.__name__]


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize(
    ("text", "body", "comma"),
    [
        (b'{"a": 1}', b'{"a": 1', b", "),
        (b'{\n  "a": 1\n}\n', b'{\n  "a": 1', b", "),
        (b"{}", b"{", b""),
    ],
)
def test_the_digest_is_the_last_member(text: bytes, body: bytes, comma: bytes) -> None:
    digest = hashlib.sha256(body).hexdigest().encode()
    sealed_text = add_json_digest(text)
    assert sealed_text == body + comma + b'"digest": "sha256:' + digest + b'"}\n'
    assert json.loads(sealed_text) == {**json.loads(text), "digest": f"sha256:{digest.decode()}"}
    assert json.loads(split_json_digest(sealed_text) or b"") == json.loads(text)


@pytest.mark.parametrize("text", [b'{"J": "T*", "digest": "x"}', b"{}", b'{"a": {"digest": 1}}'])
def test_no_flipped_bit_of_an_object_goes_unnoticed(text: bytes) -> None:
    whole = add_json_digest(text)
    refused = 0
    for bit in range(8 * len(whole)):
        damaged = with_flipped_bit(whole, bit)
        try:
            assert (
                split_json_digest(damaged) is None
            )  # not recognised, so it must be no JSON either
            with pytest.raises(ValueError, match=r"Extra data|UTF-8|utf-8|decode"):
                json.loads(damaged)
        except DamagedError:
            refused += 1
    assert refused == 8 * (len(whole) - 1)  # all but the line feed


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a": 1}\n',
        b'{\n  "sha256": "' + b"0" * 64 + b'"\n}\n',  # evaluation.json and noise.json ended so
        b'{"sha256": "' + b"0" * 64 + b'"}\n',
        b'{"fix": "sha256:' + b"0" * 64 + b'", "mode": "queue"}\n',
    ],
)
def test_texts_of_earlier_versions_have_no_digest(text: bytes) -> None:
    assert split_json_digest(text) is None


def test_a_document_without_a_digest_is_read_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "evaluation.json"
    for _ in range(3):
        assert verify_json(path, b'{"a": 1}', "evaluate again") == b'{"a": 1}'
    (note,) = notes(caplog)
    assert note.startswith(f"{path}: has no digest (an earlier version of boxmend wrote it)")
    assert caplog.records[0].levelno == logging.WARNING


def test_a_damaged_document_is_named_with_the_remedy(tmp_path: Path) -> None:
    data = add_json_digest(b'{"a": 1}').replace(b"1", b"2", 1)
    with pytest.raises(DataError, match=r"x\.json: is damaged, or was edited .*; evaluate again$"):
        verify_json(tmp_path / "x.json", data, "evaluate again")


def test_lines_with_and_without_digests_mix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = b'{"a": 1}', b'{"b": 2}'
    data = first + b"\n" + first + b"\n\n" + add_json_digest(second) + b'{"torn": "'
    lines = verify_json_lines(tmp_path / "x.jsonl", data, "remove that line")
    assert lines == [first, first, b"", second, b'{"torn": "']
    (note,) = notes(caplog)
    assert "x.jsonl: 2 of its lines have no digest" in note


def test_a_last_line_with_a_damaged_line_feed_is_not_a_torn_one(tmp_path: Path) -> None:
    data = add_json_digest(b'{"a": 1}') + add_json_digest(b'{"b": 2}')
    path = tmp_path / "x.jsonl"
    assert verify_json_lines(path, data[:-1], "")[-1] == b'{"b": 2}'  # cut off before it: whole
    for damaged in (data[:-1] + b"\x0b", data[:-1] + b"J\n\n" + data):
        with pytest.raises(DataError, match=r"x\.jsonl: line 2 is damaged.*; remove that line"):
            verify_json_lines(path, damaged, "remove that line")


def test_other_programs_read_a_table_with_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(encode_parquet(TABLE, compression="zstd"))
    assert pq.read_table(path).equals(TABLE)
    assert pq.read_table(path, memory_map=True, page_checksum_verification=True).equals(TABLE)
    assert pq.ParquetFile(path).metadata.num_rows == 3
    assert read_verified_parquet(path, "") == path.read_bytes()
    assert path.read_bytes() == encode_parquet(TABLE, compression="zstd")


def test_no_flipped_bit_around_the_footer_of_a_table_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    whole = encode_parquet(TABLE)
    for bit in range(8 * (whole.index(digests._BINARY_NAME) - 4), 8 * len(whole)):
        path.write_bytes(with_flipped_bit(whole, bit))
        with pytest.raises(DataError, match=r"table\.parquet: is damaged.*; audit again"):
            read_verified_parquet(path, "audit again")


def test_a_table_of_an_earlier_version_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(TABLE, path)
    assert read_verified_parquet(path, "") == path.read_bytes()
    assert len(notes(caplog)) == 1
    for content in (b"", b"PAR", b"PAR1PAR1", b"no table at all" * 9):
        path.write_bytes(content)
        assert read_verified_parquet(path, "") == content  # the reader will refuse it
    assert len(notes(caplog)) == 1


def test_other_programs_read_an_archive_with_a_digest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from zipfile import ZipFile

    buffer, path = io.BytesIO(), tmp_path / "a.zip"
    with ZipFile(buffer, "w") as archive:
        archive.writestr("a", "content")
    with path.open("wb") as file:
        digests.write_zip_with_digest(buffer.getbuffer(), file)
    with ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"boxmend digest sha256:")
    digests.verify_zip(path, "")
    assert notes(caplog) == []
    path.write_bytes(buffer.getvalue())
    digests.verify_zip(path, "")
    assert len(notes(caplog)) == 1


NOTED = """
import sys
from pathlib import Path
from boxmend.runs.folder import Run
run = Run(Path(sys.argv[1]))
print(run.read_json("evaluation.json"))
"""


def test_the_warning_goes_to_stderr_without_logging_settings(tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text('{"AP": 0.5}')
    done = subprocess.run(
        [sys.executable, "-c", NOTED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'AP': 0.5}\n"
    assert done.stderr.count("has no digest") == 1
