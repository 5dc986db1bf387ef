"""Every package imports only the packages listed for it; the table is the architecture."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import boxmend

ROOT = Path(boxmend.__file__).parent
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    # data: no run, no detector, no torch
    "data.box_noise_model": set(),
    "data.boxes": {"data.types"},
    "data.describing": set(),
    "data.detections": {"data.types"},
    "data.findings": set(),
    "data.label_noise_model": set(),
    "data.types": set(),
    "data.progress": set(),
    "data.files": {"errors", "data.types"},
    "data": {"errors"},
    "runs.judgement": set(),
    "runs.settings": {"errors", "data.files", "data.describing"},
    "runs": {"errors", "data"},
    "auditing": {"errors", "data", "runs"},
    "repair": {"errors", "data", "runs", "auditing"},
    "scoring": {"errors", "data", "runs", "auditing", "repair"},
    "web": {"errors", "data", "runs", "auditing", "repair", "scoring"},
    # torch begins here; of the detector the equations know the geometry of boxes alone
    "detector.boxes": set(),
    "detector": {"errors", "data.files"},
    "methods.equations": {
        *("errors", "data.box_noise_model", "data.label_noise_model"),
        *("runs.judgement", "detector.boxes"),
    },
    "methods": {"errors", "data.label_noise_model", "runs.settings", "runs.judgement", "detector"},
    "training": {
        *("errors", "data", "runs", "auditing", "repair", "scoring", "detector", "methods"),
    },
    # mending inside the trainers of other packages, which only it imports
    "integrations": {
        *("errors", "data", "auditing", "repair", "detector", "training.label_probabilities"),
    },
}
WIRING = {"bench", "cli", "__main__", "__init__"}  # may import everything
HEAVY = ("torch", "scipy", "pyarrow", "numpy", "PIL", "msgspec", "yaml")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[str]:
    """Name the modules of boxmend that a file imports anywhere, without the leading `boxmend.`."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("boxmend.") and name != "boxmend.__version__":
                yield name.removeprefix("boxmend.")


def lies_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def room_of(module: str) -> str | None:
    """Return the most specific entry of the table that a module lies in."""
    return max((room for room in MAY_IMPORT if lies_in(module, room)), key=len, default=None)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_package_imports_only_what_lies_below(path: Path) -> None:
    module = module_of(path)
    room = room_of(module)
    if room is None:
        assert module.split(".")[0] in WIRING
        return
    allowed = {room, *MAY_IMPORT[room]}
    above = [name for name in imports_of(path) if not any(lies_in(name, low) for low in allowed)]
    assert above == []


def test_the_top_level_is_a_dozen_names_and_hides_no_public_function() -> None:
    apart = {"__init__.py", "__main__.py", "__pycache__", "errors.py", "py.typed"}
    names = {path.stem for path in ROOT.iterdir() if path.name not in apart}
    assert len(names) <= 12
    assert names.isdisjoint(boxmend.__all__)


def test_no_public_class_name_exists_twice() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module_of(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


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


def test_mending_in_another_training_needs_no_torch() -> None:
    loaded = imported_by("import boxmend; boxmend.Mender, boxmend.MenderSettings")
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
