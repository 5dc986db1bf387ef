"""Record the interface of boxmend for `snapshot.py`: names, commands, flags, exit statuses."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from snapshot_running import Workspace, answer, call, plain, python

# Runs in a child process. Annotations lose the modules of their names, since modules may move.
SIGNATURES = r"""
import inspect, json, re
import boxmend

def text_of(annotation):
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:boxmend|collections|pathlib|typing|torch|numpy)\.(?:\w+\.)*", "", text)

def default_of(value):
    text = "" if value is inspect.Parameter.empty else repr(value)
    return re.sub(r"<function .*? at 0x\w+>", "<function>", text)

def signature_of(thing):
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "no signature"
    parameters = {
        name: f"{one.kind.description}: {text_of(one.annotation)} = {default_of(one.default)}"
        for name, one in signature.parameters.items()
    }
    return parameters | {"return": text_of(signature.return_annotation)}

def members_of(thing):
    members = {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}
    return {name: signature_of(m) if callable(m) else "value" for name, m in members.items()}

def described(thing):
    call = {"call": signature_of(thing)}
    return call | {"members": members_of(thing)} if inspect.isclass(thing) else call

print(json.dumps({name: described(getattr(boxmend, name)) for name in boxmend.__all__}))
"""

TINY = ("--detector", "tiny", "--image-size", "96")  # its weights are part of the package
NO_PREDICTIONS = ("--predictions", "none.json")
# Each runs in a folder with the datasets that `prepare` writes.
INVOCATIONS: dict[str, list[str]] = {
    "no command": [],
    "version": ["--version"],
    "info": ["info"],
    "unknown command": ["mendd"],
    "unknown option": ["check", "small", "--colour"],
    "missing option": ["convert", "small", "--to", "voc"],
    "missing argument": ["apply", "--out", "new"],
    "unknown choice": ["convert", "small", "--to", "pascal", "--out", "new"],
    "number expected": ["synth", "--out", "new", "--images", "many"],
    "no data": ["check"],
    "data that are not there": ["check", "nowhere"],
    "unknown split": ["check", "small:test"],
    "broken file": ["check", "broken.json"],
    "check": ["check", "small"],
    "check as JSON": ["check", "small", "--json"],
    "check finds errors": ["check", "odd"],
    "check finds errors, all, as JSON": ["check", "odd", "--all", "--json"],
    "fix without output": ["check", "odd", "--fix"],
    "diff of equal data": ["diff", "small:train", "small:train"],
    "diff": ["diff", "small:train", "spoilt"],
    "diff as JSON": ["diff", "small:train", "spoilt", "--json"],
    "output that is not empty": ["convert", "small", "--to", "voc", "--out", "spoilt"],
    "conversion that loses something": ["convert", "odd", "--to", "yolo", "--out", "new"],
    "unknown noise": ["noise", "small:train", "--out", "new", "--labels", "loud:0.4"],
    "rate above 1": ["noise", "small:train", "--out", "new", "--labels", "symmetric:1.5"],
    "unknown method": ["train", "small:train", "--out", "new", "--method", "hope"],
    "no epochs": ["train", "small:train", "--out", "new", "--epochs", "0"],
    "training into other files": ["train", "small:train", "--out", "spoilt"],
    "training on nothing": ["train", "nowhere", "--out", "new"],
    "resume of nothing": ["train", "small:train", "--out", "new", "--resume", *TINY],
    "predict without a run": ["predict", "small", "small:val", "--out", "new.json"],
    "audit without predictions": ["audit", "small", "--out", "new"],
    "audit with empty predictions": [
        "audit",
        "small",
        "--predictions",
        "none.json",
        "--out",
        "new",
    ],
    "apply without a run": ["apply", "small", "--out", "new"],
    "revert of other files": ["revert", "small"],
    "report without a run": ["report", "small"],
    "evaluate without a run": ["evaluate", "--data", "small:val"],
    "evaluate empty predictions": ["evaluate", "--data", "small:val", *NO_PREDICTIONS],
    "export to an unknown tool": ["export", "small", "--to", "paint", "--out", "new"],
    "import without a file": ["import", "small", "nowhere.json"],
    "one fold": ["folds", "small:train", "-k", "1", "--out", "new"],
    "tables": ["bench", "table"],
    "unknown table": ["bench", "table", "table9"],
    "cells": ["bench", "cells", "core", "--scale", "smoke", "--out", "cells"],
    "unknown scale": ["bench", "run", "core", "--scale", "huge", "--out", "cells"],
}


def interface(space: Workspace) -> dict[str, Any]:
    """Return public names, help of all commands, and answers to right and wrong invocations."""
    inner = Workspace(space.root, space.folder / "interface")
    inner.folder.mkdir()
    prepare(inner)
    return {
        "names": json.loads(python(inner, SIGNATURES)),
        "commands": commands(inner, ()),
        "invocations": {
            name: answer(inner, call(inner, *words, statuses=()))
            for name, words in INVOCATIONS.items()
        },
    }


def commands(space: Workspace, words: tuple[str, ...]) -> dict[str, Any]:
    """Return flags and help of a command and of the commands below it."""
    text = plain(space, call(space, *words, "--help").stdout)
    names = {" ".join(words) or "boxmend": {"flags": flags_in(text), "help": text}}
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    for name in re.findall(r"^  ([a-z][\w-]*):", listed.group(1) if listed else "", re.MULTILINE):
        names |= commands(space, (*words, name))
    return names


def flags_in(text: str) -> list[str]:
    """Return the flags that a help text lists, in its order."""
    lines = re.findall(r"^  ((?:[A-Z]+, )?--?[A-Za-z].*)$", text, re.MULTILINE)
    heads = (re.split(r":? (?=[A-Z])|: ", re.sub(r"^[A-Z]+, ", "", line))[0] for line in lines)
    return [flag for head in heads for flag in re.findall(r"--?[\w.-]+", head)]


def prepare(space: Workspace) -> None:
    """Write the datasets and files that invocations name."""
    call(space, "synth", "--out", "small", "--images", 15, "--seed", 3)
    call(space, "noise", "small:train", "--out", "spoilt", "--labels", "pair:0.5", "--seed", 4)
    write_odd(space.folder / "odd", space.folder / "small")
    (space.folder / "broken.json").write_text('{"images": [')
    (space.folder / "none.json").write_text("[]")


def write_odd(out: Path, drawn: Path) -> None:
    """Write a COCO dataset with crowds, outlines, unknown keys, odd numbers and errors."""
    pictures = sorted(drawn.rglob("*.png"))[:2]
    (out / "images").mkdir(parents=True)
    for picture in pictures:
        shutil.copy(picture, out / "images")
    first, second = (picture.name for picture in pictures)
    outline = "[[10, 10, 40.5, 10, 40.5, 44, 10, 44]]"
    crowd = '{"counts": [0, 9216], "size": [96, 96]}'
    (out / "instances_train.json").write_text(
        '{"info": {"year": 2026, "about": "made by hand"},\n "images": [\n'
        f'  {{"id": 7, "file_name": "{first}", "width": 96, "height": 96, "camera": "left"}},\n'
        f'  {{"file_name": "{second}", "id": 3, "height": 96, "width": 96}},\n'
        '  {"id": 9, "file_name": "gone.png", "width": 96, "height": 96}],\n'
        ' "categories": [{"id": 5, "name": "cat", "supercategory": "animal"},'
        ' {"id": 2, "name": "two words"}, {"id": 11, "name": "never"}],\n "annotations": [\n'
        '  {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 10.00, 30.50, 34], '
        f'"area": 1037, "iscrowd": 0, "segmentation": {outline}, "checked": true}},\n'
        '  {"id": 2, "image_id": 7, "category_id": 2, "bbox": [80, 70, 1e3, 12.125], "area": 5},\n'
        '  {"id": 4, "image_id": 3, "category_id": 2, "bbox": [0, 0, 96, 96], "area": 9216, '
        f'"iscrowd": 1, "segmentation": {crowd}}},\n'
        '  {"id": 5, "image_id": 3, "category_id": 5, "bbox": [20, 20, 0, 15], "area": 0},\n'
        '  {"id": 6, "image_id": 3, "category_id": 5, "bbox": [3.25, 4.5, 20, 21], "area": 420},\n'
        '  {"id": 8, "image_id": 3, "category_id": 5, "bbox": [3.25, 4.5, 20, 21], "area": 420}\n'
        " ]\n}\n"
    )
