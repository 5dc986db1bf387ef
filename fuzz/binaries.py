"""Structural mutations of binary files: Parquet, images, archives, weights."""

import functools
import io
import json
import pickle
import random
import struct
import warnings
import zipfile
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

import odd_values
from structured import mutate_json, mutate_xml

HUGE_SIZES = (
    (65_500, 65_500),
    (2**31 - 1, 1),
    (1, 2**31 - 1),
    (40_000, 40_000),
    (0, 0),
    (20_000, 9_000),
)
BOMB_BYTES = 3 << 30


def mutate_parquet(data: bytes, rng: random.Random) -> bytes:
    """Change the columns, rows, types or metadata of a table."""
    table = pq.read_table(io.BytesIO(data))
    operation = rng.randrange(10)
    k = rng.randrange(table.num_columns) if table.num_columns else 0
    if operation == 0 and table.num_columns:
        table = table.remove_column(k)
    elif operation == 1 and table.num_columns:
        table = table.append_column(table.field(k), table.column(k))  # the same name twice
    elif operation == 2:
        names = list(table.column_names)
        names[k] = odd_values.draw_name(rng).encode("utf-8", "replace").decode()
        table = table.rename_columns(names)
    elif operation == 3:
        table = table.slice(0, rng.randrange(table.num_rows + 1))
    elif operation == 4:
        table = pa.concat_tables([table] * rng.choice((2, 50)))
    elif operation == 5:
        table = table.replace_schema_metadata(_change_metadata(table, rng))
    else:
        table = _change_values(table, k, rng)
    return _encode_table(table, rng)


def _change_metadata(table: pa.Table, rng: random.Random) -> dict[bytes, bytes]:
    metadata = dict(table.schema.metadata or {})
    if not metadata:
        return {b"x": b"y"}
    key = rng.choice(sorted(metadata))
    value = metadata.pop(key)
    operation = rng.randrange(4)
    if operation == 1:
        metadata[key] = odd_values.draw_name(rng).encode("utf-8", "replace")
    elif operation == 2:
        metadata[key] = value[: len(value) // 2]
    elif operation == 3:
        try:
            metadata[key] = mutate_json(value, rng)
        except ValueError:
            metadata[key] = bytes(reversed(value))
    return metadata


def _change_values(table: pa.Table, k: int, rng: random.Random) -> pa.Table:
    """Change a value or the type of a column."""
    column, field = table.column(k), table.field(k)
    values = column.to_pylist()
    if values and rng.random() < 0.5:
        row = rng.randrange(len(values))
        values[row] = odd_values.draw_similar(values[row], rng) if rng.random() < 0.7 else None
    try:
        if rng.random() < 0.5:
            changed = pa.array(values, field.type)
        else:
            kinds = (pa.string(), pa.int64(), pa.float32(), pa.bool_(), pa.binary(), pa.null())
            changed = pa.array(values).cast(rng.choice(kinds), safe=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        changed = pa.array([[1]] * len(values))
    return table.set_column(k, field.name, changed)


def _encode_table(table: pa.Table, rng: random.Random) -> bytes:
    file = io.BytesIO()
    kinds = ("none", "snappy", "zstd", "gzip")
    try:
        pq.write_table(table, file, compression=rng.choice(kinds))
    except pa.ArrowException:
        return b"PAR1" + bytes(8) + b"PAR1"
    return file.getvalue()


def mutate_image(data: bytes, rng: random.Random) -> bytes:
    """Write false sizes into the header of an image, cut it, or replace it by another file."""
    operation = rng.randrange(6)
    if operation < 2 and data[:4] == b"\x89PNG":
        size = rng.choice(HUGE_SIZES)
        body = b"IHDR" + struct.pack(">II", *size) + data[24:29]
        return data[:12] + body + struct.pack(">I", zlib.crc32(body)) + data[33:]
    if operation == 2 and data[:4] == b"\x89PNG":
        return _make_png_bomb(rng)
    if operation == 3:
        return rng.choice((b"", b"<svg/>", b"GIF89a", b"II*\x00" + bytes(20), b"BM" + bytes(60)))
    if operation == 4:
        at = rng.randrange(len(data) or 1)
        return data[:at] + struct.pack(">I", rng.getrandbits(32)) + data[at + 4 :]
    return data[: rng.randrange(len(data) + 1)]


def _make_png_bomb(rng: random.Random) -> bytes:
    """Return a small PNG file that decodes to many pixels."""
    side = rng.choice((4_000, 9_000, 13_000))
    packer = zlib.compressobj(1)
    row = bytes(side + 1)
    body = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    parts = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)), (b"IDAT", body)]
    parts.append((b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )


def mutate_archive(data: bytes, rng: random.Random) -> bytes:
    """Change the members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    operation = rng.randrange(7)
    is_duplicated = False
    if operation == 0:
        members[odd_values.draw_name(rng).replace("\x00", "")[:200] or "x"] = members.pop(name)
    elif operation == 1:
        is_duplicated = True
    elif operation == 2:
        members = {}
    elif operation < 6 and name.endswith(".xml"):
        members[name] = mutate_xml(members[name], rng)
    elif operation == 6 and rng.random() < 0.3:
        return _make_zip_bomb(name)
    file = io.BytesIO()
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", rng.choice(kinds)) as archive:
        warnings.simplefilter("ignore")  # about duplicate names, which are intended here
        for member, content in members.items():
            for _ in range(1 + is_duplicated):
                archive.writestr(member.encode("utf-8", "replace").decode(), content)
    return file.getvalue()


@functools.cache
def _make_zip_bomb(name: str) -> bytes:
    """Return a zip file whose member unpacks to 3 GB."""
    file = io.BytesIO()
    piece = bytes(1 << 24)
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        for _ in range(BOMB_BYTES // len(piece)):
            member.write(piece)
    return file.getvalue()


def mutate_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Change the header of a weights file or the length of the header."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = data[8 : 8 + length], data[8 + length :]
    operation = rng.randrange(8)
    if operation == 0:
        return struct.pack("<Q", rng.choice((0, 1, length - 1, 2**40, 2**64 - 1))) + data[8:]
    if operation == 1:
        return data[: rng.randrange(len(data))]
    if operation < 5:
        parsed = json.loads(header)
        values = parsed["__metadata__"]
        values.pop("boxmend_digest", None)  # otherwise the reader checks nothing else
        key = rng.choice(sorted(values))
        try:
            values[key] = mutate_json(values[key].encode(), rng).decode("utf-8", "replace")
        except ValueError:
            values[key] = str(odd_values.draw_token(rng)).encode("utf-8", "replace").decode()
        header = json.dumps(parsed).encode()
    else:
        parsed = json.loads(header)
        parsed["__metadata__"].pop("boxmend_digest", None)
        header = mutate_json(json.dumps(parsed).encode(), rng)
    return struct.pack("<Q", len(header)) + header + body


def mutate_checkpoint(data: bytes, rng: random.Random) -> bytes:
    """Change a member of a file that `torch.save` wrote, or replace the file by a bare pickle."""
    operation = rng.randrange(5)
    if operation == 0:
        return pickle.dumps(rng.choice(({}, [], {"step": 1}, None, "x", 10**100)))
    if operation == 1:
        return b"cos\nsystem\n(S'exit 0'\ntR."
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    if operation == 2:
        del members[name]
    else:
        name = next(key for key in members if key.endswith("data.pkl")) if operation == 3 else name
        flipped = bytearray(members[name])
        if flipped:
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        members[name] = bytes(flipped)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return file.getvalue()
