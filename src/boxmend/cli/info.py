"""`boxmend info`: versions, devices and formats."""

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
    "yolo": "a data.yaml, or the folder with it",
}


app = App(name="info")


@app.default
def info(*, json: Json = False) -> int:
    """Show versions, devices and formats.

    Example: boxmend info --json
    """
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
    rows += [(name, number or _hint(name)) for name, number in facts["packages"].items()]
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
        return "not installed; needed for training: pip install 'boxmend[train]'"
    return "not installed"


def _devices() -> list[str]:
    devices = [f"cpu ({os.cpu_count()} cores)"]
    if _version("torch") is None:
        return devices
    try:
        import torch
    except (ImportError, OSError) as error:  # a broken installation must not end `info`
        return [*devices, f"torch cannot be imported: {error}"]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return devices + [f"cuda:{index} ({name})" for index, name in enumerate(names)]
