"""Mutate one input: its structure, its bytes, or the kind of file at its path."""

import base64
import functools
import json
import os
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import binaries
import structured

Mutation = Callable[[bytes, random.Random], bytes]
MUTATION_BY_SUFFIX: dict[str, Mutation] = {
    ".json": structured.mutate_json,
    ".jsonl": structured.mutate_lines,
    ".xml": structured.mutate_xml,
    ".yaml": structured.mutate_yaml,
    ".txt": structured.mutate_text,
    ".csv": structured.mutate_text,
    ".toml": structured.mutate_text,
    ".parquet": binaries.mutate_parquet,
    ".zip": binaries.mutate_archive,
    ".safetensors": binaries.mutate_safetensors,
    ".pt": binaries.mutate_checkpoint,
    "": structured.mutate_json,  # `finished` of a run
    **dict.fromkeys((".png", ".jpg", ".bmp", ".gif", ".webp", ".tif"), binaries.mutate_image),
}
OTHER_ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "utf-7")
BOMB_BYTES = 3 << 30
SHARE_OF_BYTES, SHARE_OF_PATHS = 0.2, 0.12


def mutate(files: Sequence[Path], rng: random.Random) -> str:
    """Mutate one of the files; return a description of the change."""
    path = rng.choice(sorted(files))
    draw = rng.random()
    if draw < SHARE_OF_PATHS:
        return f"{path.name}: {_change_path(path, rng)}"
    data = path.read_bytes()
    if path.name == "patch.json" and rng.random() < 0.03:
        path.write_bytes(_add_bomb(data))
        return f"{path.name}: bomb"
    if draw < SHARE_OF_PATHS + SHARE_OF_BYTES:
        description, changed = _change_bytes(data, rng)
    else:
        description, changed = _change_structure(path, data, rng)
    path.write_bytes(changed)
    return f"{path.name}: {description}"


def _change_structure(path: Path, data: bytes, rng: random.Random) -> tuple[str, bytes]:
    mutation = MUTATION_BY_SUFFIX.get(path.suffix, structured.mutate_text)
    try:
        return "structure", mutation(data, rng)
    except Exception:
        return "bytes", _change_bytes(data, rng)[1]  # the content no longer matches the name


def _change_bytes(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Flip, cut, repeat or replace bytes regardless of the format."""
    operation = rng.randrange(9)
    at = rng.randrange(len(data)) if data else 0
    if operation < 3 and data:
        flipped = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 4, 30))):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return "flipped bits", bytes(flipped)
    if operation == 3:
        return "cut", data[:at]
    if operation == 4:
        return "empty", b""
    if operation == 5:
        return "repeated", data[:at] + data[at : at + 64] * rng.choice((2, 500)) + data[at:]
    if operation == 6:
        return "noise", data[:at] + rng.randbytes(16) + data[at + 16 :]
    if operation == 7:
        text = data.decode("utf-8", "replace")
        return "encoding", text.encode(rng.choice(OTHER_ENCODINGS), "replace")
    return "appended", data + rng.choice((b"\x00", b"\n", b"}", b"\xff" * 100, data))


def _change_path(path: Path, rng: random.Random) -> str:
    """Replace a file by a link, a FIFO, a folder or nothing, or rename it."""
    data = path.read_bytes()
    path.unlink()
    operation = rng.randrange(11)
    links = {0: path.name, 1: "/dev/zero", 2: "/dev/null", 3: "nowhere", 4: ".", 5: "/dev/stdin"}
    if operation in links:
        path.symlink_to(links[operation])
        return f"link to {links[operation]}"
    if operation == 6:
        os.mkfifo(path)
        return "FIFO"
    if operation == 7:
        path.mkdir()
        return "folder"
    if operation == 8:
        return "deleted"
    if operation == 9:
        other = path.with_name(rng.choice((path.name.upper(), f"{path.name}.bak", "\udcff.txt")))
        other.write_bytes(data)
        return "renamed"
    real = path.parent / f"{path.stem}.real"
    real.write_bytes(data)
    path.symlink_to(real.name)
    return "link to itself elsewhere"


@functools.cache
def _encode_bomb() -> str:
    packer, piece = zlib.compressobj(1), bytes(1 << 24)
    packed = b"".join(packer.compress(piece) for _ in range(BOMB_BYTES // len(piece)))
    return base64.b64encode(packed + packer.flush()).decode()


def _add_bomb(data: bytes) -> bytes:
    """Return a patch whose first file unpacks to 3 GB, or the same bytes if they are no patch."""
    try:
        document = json.loads(data)
        first = next(iter(document["files"].values()))
        first.pop("ranges", None)
        first["deflated"] = _encode_bomb()
    except (ValueError, LookupError, AttributeError, TypeError, StopIteration):
        return data
    document.pop("digest", None)  # otherwise the patch is refused as damaged
    return json.dumps(document).encode()
