"""Coverage-guided fuzzing of the three readers, as a local check.

    pip install atheris
    python fuzz/fuzz_readers.py coco|voc|labels|yaml -max_total_time=120

Whatever the bytes, reading ends in a dataset, in findings or in a BoxmendError; what was read
can be written, and unchanged it gives the same bytes. Anything else is a crash that atheris
reports with the input that caused it.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["boxmend"]):
    import boxmend.formats
    from boxmend.errors import BoxmendError
    from boxmend.findings import Severity

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000008000000080806000000c40fbe8b"
    "0000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
FOLDER = Path(tempfile.mkdtemp())


def lay_out(kind: str, data: bytes) -> tuple[Path, Path]:
    """Put the bytes where a reader of this kind finds them: its address, and the file itself."""
    root = FOLDER / kind
    files = {
        "coco": root / "instances_train.json",
        "voc": root / "Annotations" / "a.xml",
        "labels": root / "labels" / "train" / "a.txt",
        "yaml": root / "data.yaml",
    }
    file = files[kind]
    if not file.parent.exists():
        file.parent.mkdir(parents=True)
        (root / "images" / "train").mkdir(parents=True)
        (root / "images" / "train" / "a.png").write_bytes(PNG)
        if kind == "labels":
            (root / "data.yaml").write_text("train: images/train\nnames: [a, b]\n")
    file.write_bytes(data)
    return (root if kind in ("voc", "labels") else file), file


def test_one(kind: str, data: bytes) -> None:
    """Read the bytes and, where they are a sound dataset, write them back."""
    address, file = lay_out(kind, data)
    try:
        dataset = boxmend.formats.read(address)
    except BoxmendError:
        return
    if any(finding.severity is Severity.ERROR for finding in dataset.findings):
        return
    out = FOLDER / "out"
    with contextlib.suppress(BoxmendError):
        saved = dataset.save(out, images_as="none")
        name = next(name for name in saved.files if name.endswith(file.suffix))
        if kind != "yaml" and (out / name).read_bytes() != data:
            raise RuntimeError(f"{kind}: what was not changed came back with other bytes")
    if out.exists():
        for path in sorted(out.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        out.rmdir()


def main() -> None:
    """Hand the command line to atheris."""
    kind = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if kind not in ("coco", "voc", "labels", "yaml"):
        sys.exit(__doc__)
    os.chdir(FOLDER)
    atheris.Setup(sys.argv, lambda data: test_one(kind, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
