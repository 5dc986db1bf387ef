"""Check the folder of a run before Ultralytics and a prescreen take minutes."""

from pathlib import Path

from boxmend.data.files.temporary import is_temporary
from boxmend.errors import OutputError
from boxmend.repair.trained_runs import TrainedRun

LOCK_FILE = ".lock"  # a run that was killed at its start leaves it


def ensure_usable(out: Path, *, resume: bool = False) -> None:
    """Raise an OutputError if a training cannot write its run into a folder."""
    if (out / "run.json").exists():
        _ensure_resumable(out, resume)
    elif out.is_dir():
        names = sorted(path.name for path in out.iterdir())
        foreign = [name for name in names if name != LOCK_FILE and not is_temporary(name)]
        if foreign:
            raise OutputError(
                f"{out}: is not the folder of a run, and not empty ({foreign[0]}); name a new "
                "folder"
            )
    elif out.exists():
        raise OutputError(f"{out}: exists and is not a folder; name a new folder")


def _ensure_resumable(out: Path, resume: bool) -> None:
    """Raise an OutputError for a finished run, and for an unfinished one unless `resume`."""
    if TrainedRun(out).is_finished:
        raise OutputError(
            f"{out}: has a finished run, which is never overwritten; name a new folder"
        )
    if not resume:
        raise OutputError(
            f"{out}: has an unfinished run. To resume its training, load Ultralytics' checkpoint "
            "in Python with YOLO('.../weights/last.pt'), attach with the same options, and call "
            "train(resume=True); see docs/ultralytics.md#resume. To start again, name a new folder"
        )
