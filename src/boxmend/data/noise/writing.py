"""Write a noisy dataset, with the truth and a record of the noise beside it."""

import hashlib
from pathlib import Path
from typing import Any

from boxmend import __version__
from boxmend.data.files.digests import add_json_digest
from boxmend.data.files.json_text import encode_json
from boxmend.data.files.staging import stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats.writing import SaveResult, WriteOptions, write_into
from boxmend.data.noise.disturbing import Noisy
from boxmend.data.noise.settings import NoiseSettings
from boxmend.data.noise.truth import write_truth
from boxmend.errors import OutputError

TRUTH_FILE = "truth.parquet"
RECORD_FILE = "noise.json"


def write_noisy(
    noisy: Noisy, settings: NoiseSettings, out: Path, options: WriteOptions
) -> SaveResult:
    """Write a noisy dataset in its own format, with truth.parquet and noise.json beside it.

    The folder appears complete or not at all.
    """
    with stage_folder(out, sync=options.sync) as folder:
        saved = write_into(folder, noisy.dataset, None, options, out=out)
        for name in (TRUTH_FILE, RECORD_FILE):
            if name in saved.files:
                raise OutputError(
                    f"{out}: {name} would be both an annotation file of the dataset and a file "
                    "about the noise; rename the annotation file"
                )
        write_truth(noisy.truth.with_annotation_ids(saved.annotation_ids), folder / TRUTH_FILE)
        with (folder / RECORD_FILE).open("xb") as file:
            file.write(_encode_record(noisy, settings, saved))
        ensure_unchanged(noisy.dataset)
    return saved


def join_digests(files: dict[str, str]) -> str:
    """Join the SHA-256 digests of files (path -> digest) into one.

    The digest of a single file stays as it is. Several files get the digest of the list that
    `sha256sum` prints for them, sorted by path.
    """
    if len(files) == 1:
        return next(iter(files.values()))
    listing = "".join(f"{digest}  {path}\n" for path, digest in sorted(files.items()))
    return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()


def _encode_record(noisy: Noisy, settings: NoiseSettings, saved: SaveResult) -> bytes:
    """Encode the content of noise.json, which does not depend on the time or the machine."""
    described = settings.to_json()
    if settings.labels is not None and settings.labels.startswith("matrix:"):
        described["labels"] = f"matrix:{Path(settings.labels.partition(':')[2]).name}"
    record: dict[str, Any] = {
        "boxmend": __version__,
        "counts": noisy.counts,
        "files": saved.files,
        "label_names": noisy.dataset.label_names,
        "settings": described,
        "sha256": join_digests(saved.files),
    }
    if noisy.detections_sha256 is not None:
        record["detections_sha256"] = noisy.detections_sha256
    return add_json_digest(encode_json(record, indent=2, sort_keys=True))
