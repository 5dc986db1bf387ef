"""Check the folder of a run before Ultralytics and a prescreen take minutes."""

from pathlib import Path

from boxmend.repair.mender.recording import ensure_open

RESUME_REMEDY = (
    "to resume its training, load Ultralytics' checkpoint in Python with "
    "YOLO('.../weights/last.pt'), attach with the same options, and call train(resume=True); see "
    "docs/ultralytics.md#resume. To start again, name a new folder"
)


def ensure_usable(out: Path, *, resume: bool = False) -> None:
    """Raise an OutputError if a training cannot write its run into a folder."""
    ensure_open(out, resume=resume, remedy=RESUME_REMEDY)
