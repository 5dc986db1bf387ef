"""`boxmend info`: what is installed and what it can use."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cyclopts import App

import boxmend
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table
from boxmend.errors import ExitStatus

PACKAGES = ("numpy", "scipy", "msgspec", "pyarrow", "pillow", "pyyaml", "torch", "torchvision")
FORMATS = {
    "coco": "a .json file, or a folder with instances_*.json",
    "voc": "a folder with Annotations/*.xml",
    "yolo": "a data.yaml, or the folder it lies in",
}


app = App(name="info", help_format="markdown")


@app.default
def info(*, json: Json = False) -> int:
    """Show versions, devices and formats."""
    facts: dict[str, Any] = {
        "boxmend": boxmend.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": _devices(),
        "formats": FORMATS,
    }
    if json:
        print_json(facts)
        return ExitStatus.FINE
    rows = [("boxmend", facts["boxmend"]), ("python", facts["python"])]
    rows += [("platform", facts["platform"])]
    rows += [(name, found or _hint(name)) for name, found in facts["packages"].items()]
    rows += [("device", device) for device in facts["devices"]]
    rows += [(f"format {name}", what) for name, what in FORMATS.items()]
    print_table(("what", "is"), rows)
    return ExitStatus.FINE


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _hint(package: str) -> str:
    if package in ("torch", "torchvision"):
        return "not installed (pip install 'boxmend[train]' adds it, for training)"
    return "not installed"


def _devices() -> list[str]:
    devices = [f"cpu ({os.cpu_count()} cores)"]
    if _version("torch") is None:
        return devices
    try:
        import torch
    except (ImportError, OSError) as error:  # a broken installation is worth telling, not a crash
        return [*devices, f"torch cannot be imported: {error}"]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return devices + [f"cuda:{index} ({name})" for index, name in enumerate(names)]
