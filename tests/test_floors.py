"""Every room imports only the rooms listed for it; the table is the architecture."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import boxmend

ROOT = Path(boxmend.__file__).parent
GROUND = {"errors", "findings", "files", "boxes", "detection_columns"}
MAY_IMPORT = {
    "errors": set[str](),
    "findings": set[str](),
    "verdict": set[str](),
    "boxes": set[str](),
    "detection_columns": set[str](),
    "files": {"errors"},
    "dataset": {"errors", "files", "findings", "formats"},  # formats only when `save` is called
    "formats": {"dataset", "fingerprint", "photos", *GROUND},
    "decoding": {"files", "errors"},
    "photos": {"decoding", *GROUND},
    "pictures": {"decoding", *GROUND},
    "checks": {"dataset", "photos", *GROUND},
    "comparison": {"dataset", *GROUND},
    "noise": {"dataset", "fingerprint", "formats", *GROUND},
    "synth": {"dataset", "formats", *GROUND},
    "scores": {"dataset", *GROUND},
    "ledger": {"dataset", "verdict", *GROUND},
    "metric_lines": GROUND,
    "runs": {"metric_lines", *GROUND},
    "fingerprint": {"dataset", *GROUND},
    "fixes": {"dataset", "mending", "runs", *GROUND},
    "mending": {
        *("dataset", "formats", "comparison", "fingerprint", "ledger", "runs", "verdict", "fixes"),
        *("settings", *GROUND),
    },
    "folds": {"dataset", "formats", "fingerprint", *GROUND},
    "detections": {
        *("dataset", "scores", "formats", "photos", "comparison", "folds", *GROUND),
    },
    "assessment": {
        *("dataset", "formats", "comparison", "noise", "scores", "detections", "mending"),
        *("fixes", "verdict", *GROUND),
    },
    "report": {
        *("dataset", "photos", "pictures", "comparison", "assessment", "mending", "runs"),
        *("verdict", "decoding", *GROUND),
    },
    "handover": {
        *("dataset", "formats", "photos", "comparison", "mending", "runs", "verdict", "fixes"),
        *("fingerprint", *GROUND),
    },
    "auditing": {
        *("dataset", "comparison", "detections", "fingerprint", "fixes", "mending", "runs"),
        *GROUND,
    },
    "review": {  # the report, for its style and its way with texts
        *("dataset", "photos", "files", "fingerprint", "fixes", "mending", "report", *GROUND),
    },
    # torch begins here; these two are neighbours and do not know each other
    "detector": {*GROUND},
    "refinement": {"verdict", *GROUND},
    "loader": {"dataset", "photos", "decoding", *GROUND},
    "methods": {"detector", "refinement", "verdict", "settings", *GROUND},
    "refiner": {"detector", "methods", "settings", *GROUND},
    "settings": {"errors", "files"},
}
WIRING = {
    *("training", "prediction", "evaluation", "demonstration", "bench"),
    *("cli", "__main__", "__init__"),
}
HEAVY = ("torch", "scipy", "pyarrow", "numpy", "PIL", "msgspec", "yaml")


def rooms_imported_by(path: Path) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    rooms = {name.split(".")[1] for name in names if name.startswith("boxmend.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_what_lies_below(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room not in WIRING:
        assert rooms_imported_by(path) - {room} <= MAY_IMPORT[room]


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {line.split(".")[0] for line in done.stdout.splitlines()}


def test_the_help_imports_nothing_that_takes_time() -> None:
    loaded = imported_by("from boxmend.cli import run; run(['--help'])")
    assert loaded.isdisjoint(HEAVY)
    assert "cyclopts" in loaded


def test_reading_a_dataset_needs_no_torch() -> None:
    loaded = imported_by("import boxmend; boxmend.load, boxmend.check, boxmend.disturb")
    assert "numpy" in loaded
    assert "torch" not in loaded


def test_all_public_names_are_there_and_sorted() -> None:
    assert boxmend.__all__ == sorted(boxmend.__all__)
    for name in boxmend.__all__:
        assert getattr(boxmend, name) is not None
    assert set(boxmend.__all__) <= set(dir(boxmend))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'mend_everything'"):
        boxmend.mend_everything  # noqa: B018  # looking it up is the test
