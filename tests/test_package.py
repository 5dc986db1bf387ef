"""The wheel, built and installed into an environment of its own, runs."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import boxmend
from tests import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_the_types_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "boxmend/py.typed" in names
    assert "boxmend/data/formats/coco/__init__.py" in names
    assert "boxmend/detector/tiny.safetensors" in names
    assert not [name for name in names if "tests/" in name or "/test_" in name]
    for part in ("page.html.j2", "page.css", "page.js", "pictures.js", "rows.js", "theme.js"):
        assert f"boxmend/web/report/static/{part}" in names
    for part in ("index.html", "review.css", "review.js", "stage.js"):
        assert f"boxmend/web/review/static/{part}" in names


def test_the_version_is_the_same_everywhere(wheel: Path) -> None:
    assert wheel.name.split("-")[1] == boxmend.__version__


def test_the_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([str(python), *install], check=True, capture_output=True)
    # The dependencies are borrowed from here: a test fetches nothing.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    out = tmp_path / "toys"
    commands = [["--version"], ["info"], ["synth", "--images", "3", "--out", str(out)]]
    for command in [*commands, ["check", str(out)]]:
        done = subprocess.run(
            [str(home / "bin" / "boxmend"), *command],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
    code = "import boxmend; print(boxmend.__file__)"
    done = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.startswith(str(home))


def test_mending_inside_yolo_trainings_installs_what_trainings_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(extras["train"]) < set(extras["ultralytics"])  # its code imports the detector
