"""Coverage-guided fuzzing of the readers, as a local check.

    pip install atheris
    python fuzz/fuzz_readers.py coco|voc|labels|yaml|detections -max_total_time=120

For any bytes, the reader must return a dataset, report findings or raise a BoxmendError. A dataset
without errors can be written, and gives the same bytes if it is unchanged. Detections can be
scored, and every score is a fraction or None. atheris reports anything else as a crash, with the
input that caused it.
"""

import contextlib
import functools
import json
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["boxmend"]):
    import boxmend.data.formats
    from boxmend.auditing.predictions import read_coco_results
    from boxmend.data.dataset import Dataset
    from boxmend.data.findings import Severity
    from boxmend.errors import BoxmendError
    from boxmend.training.evaluation import score

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000008000000080806000000c40fbe8b"
    "0000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
FOLDER = Path(tempfile.mkdtemp())
SCORED_COCO = {  # two images that share a stem, a number that is a file name, and a crowd
    "images": [
        {"id": k, "file_name": name, "width": 64, "height": 64}
        for k, name in ((1, "a/1.png"), (2, "b/1.png"), (7, "000042.png"))
    ],
    "categories": [{"id": 1, "name": "cat"}, {"id": 5, "name": "dog"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 5, "bbox": [1, 2, 3, 4], "iscrowd": 0},
        {"id": 3, "image_id": 7, "category_id": 5, "bbox": [5, 6, 20, 20], "iscrowd": 1},
    ],
}


def lay_out(kind: str, data: bytes) -> tuple[Path, Path]:
    """Write the bytes to a file of this kind; return the address of its dataset and the file."""
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


def fuzz_dataset(kind: str, data: bytes) -> None:
    """Read the bytes; if they are a dataset without errors, write it back."""
    address, file = lay_out(kind, data)
    try:
        dataset = boxmend.data.formats.read(address)
    except BoxmendError:
        return
    if any(finding.severity is Severity.ERROR for finding in dataset.findings):
        return
    out = FOLDER / "out"
    with contextlib.suppress(BoxmendError):
        saved = dataset.save(out, images_as="none")
        name = next(name for name in saved.files if name.endswith(file.suffix))
        if kind != "yaml" and (out / name).read_bytes() != data:
            raise RuntimeError(f"{kind}: an unchanged dataset was written with other bytes")
    if out.exists():
        for path in sorted(out.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        out.rmdir()


@functools.cache
def load_scored() -> Dataset:
    """Load the dataset that detections are scored on."""
    path = FOLDER / "instances_val.json"
    path.write_text(json.dumps(SCORED_COCO))
    return boxmend.data.formats.read(path)


def fuzz_detections(data: bytes) -> None:
    """Read the bytes as detections; if that succeeds, score them."""
    path = FOLDER / "found.json"
    path.write_bytes(data)
    dataset = load_scored()
    try:
        detections = read_coco_results(path, dataset)
    except BoxmendError:
        return
    scores = score(detections, dataset).to_json()
    json.dumps(scores, allow_nan=False)
    figures = [value for key, value in scores.items() if key[:2] in ("AP", "AR", "vo")]
    if not all(value is None or 0 <= value <= 1 + 1e-9 for value in figures):
        raise RuntimeError(f"detections: scores outside of 0 to 1: {figures}")


def main() -> None:
    """Run atheris with the options of the command line."""
    kind = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if kind not in ("coco", "voc", "labels", "yaml", "detections"):
        sys.exit(__doc__)
    os.chdir(FOLDER)
    test = fuzz_detections if kind == "detections" else functools.partial(fuzz_dataset, kind)
    atheris.Setup(sys.argv, test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
