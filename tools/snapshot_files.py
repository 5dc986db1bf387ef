"""Record the files that commands of boxmend write, for `snapshot.py`."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from snapshot_interface import write_odd
from snapshot_running import (
    Workspace,
    answer,
    call,
    digest,
    gather,
    names_in,
    plain,
    read_bytes,
    read_json,
    read_lines,
    read_tree,
)
from snapshot_training import needed_run, predictions

FORMATS = ("coco", "voc", "yolo")
TOOLS = ("label-studio", "cvat", "fiftyone", "coco")
PRECISION = 0.75  # so low that fixes of all five kinds are applied, and not all of each


def files(space: Workspace) -> dict[str, Any]:
    """Return digests of the files that each command writes."""
    needed_run(space, "mend")
    predictions(space)
    audited = ("noisy", "--predictions", "predictions.json", "--unseen", "--out", "audit")
    call(space, "audit", *audited)
    steps = {
        "datasets": drawn_files,
        "noise": noise_files,
        "convert": convert_files,
        "odd data": odd_files,
        "folds": fold_files,
        "evaluate": evaluate_runs,
        "report": report_runs,
        "apply": apply_changes,
        "export": export_runs,
        "import": import_verdicts,
        "demo": demo,
    }
    return gather(space, {name: partial(step, space) for name, step in steps.items()})


def drawn_files(space: Workspace) -> dict[str, Any]:
    """Return the files of the datasets that trainings use."""
    names = ("toys", "noisy", "wrong-labels")
    return {name: read_tree(space, space.folder / name) for name in names}


def write_folder(space: Workspace, out: str, *words: object) -> dict[str, Any]:
    """Run a command that writes a folder and return its answer and the files."""
    done = call(space, *words, "--out", out, statuses=(0, 1))
    return {"answer": answer(space, done), "files": read_tree(space, space.folder / out)}


def noise_files(space: Workspace) -> dict[str, Any]:
    """Return noisy copies by other kinds of noise, of each format."""
    call(space, "synth", "--out", "few", "--images", 15, "--seed", 3)
    kinds = {
        "pair": ("few:train", "--labels", "pair:0.3", "--seed", 1),
        "gaussian": ("few:train", "--boxes", "gaussian:0.2", "--seed", 2, "--no-clip"),
        "jitter": ("few:train", "--boxes", "jitter:0.3", "--subset", 0.5, "--images-as", "copy"),
        "joined": ("few:train", "few:val", "--spurious", 0.2, "--duplicate", 0.2, "--json"),
    }
    return {name: write_folder(space, f"noise-{name}", "noise", *kinds[name]) for name in kinds}


def convert_files(space: Workspace) -> dict[str, Any]:
    """Return conversions between all pairs of formats."""
    collected = {}
    for source in FORMATS:
        drawn = f"few-{source}"
        words = ("synth", "--images", 15, "--seed", 3, "--format", source)
        collected[drawn] = write_folder(space, drawn, *words)
        for target in FORMATS:
            out = f"{source}-to-{target}"
            collected[out] = write_folder(space, out, "convert", drawn, "--to", target)
    return collected


def odd_files(space: Workspace) -> dict[str, Any]:
    """Return conversions and repairs of data with crowds, outlines, odd numbers and errors."""
    write_odd(space.folder / "odd", space.folder / "few")
    collected = {
        f"to {target}": write_folder(
            space, f"odd-{target}", "convert", "odd", "--to", target, "--allow-lossy"
        )
        for target in FORMATS
    }
    for choice in ("flag", "drop"):
        options = ("--segmentation", choice)
        words = ("noise", "odd", "--boxes", "uniform:0.3", *options)
        collected[f"fixed, {choice}"] = write_folder(
            space, f"fixed-{choice}", "check", "odd", "--fix", *options
        )
        collected[f"noisy, {choice}"] = write_folder(space, f"odd-noisy-{choice}", *words)
    return collected | difficult_files(space) | polygon_files(space)


def difficult_files(space: Workspace) -> dict[str, Any]:
    """Return noise on and conversions of VOC with a difficult object and a comment."""
    shutil.copytree(space.folder / "few-voc", space.folder / "difficult", symlinks=True)
    file = min(space.folder.glob("difficult/**/*.xml"))
    text = file.read_text().replace("<difficult>0<", "<difficult>1<", 1)
    file.write_text(text.replace("</annotation>", "<!-- by hand -->\n</annotation>"))
    noise = ("noise", "difficult:train", "--labels", "symmetric:0.5", "--boxes", "uniform:0.2")
    return {
        "difficult, noisy": write_folder(space, "difficult-noisy", *noise),
        **{
            f"difficult to {target}": write_folder(
                space,
                f"difficult-{target}",
                "convert",
                "difficult",
                "--to",
                target,
                "--allow-lossy",
            )
            for target in FORMATS
        },
    }


def polygon_files(space: Workspace) -> dict[str, Any]:
    """Return conversions of YOLO labels with a polygon."""
    shutil.copytree(space.folder / "few-yolo", space.folder / "polygons", symlinks=True)
    file = min(space.folder.glob("polygons/labels/train/*.txt"))
    file.write_text(file.read_text() + "2 0.10 0.1 0.5 0.125 0.4 0.75\n")
    words = ("convert", "polygons:train", "--polygons", "box", "--allow-lossy", "--to")
    return {
        f"polygons to {target}": write_folder(space, f"polygons-{target}", *words, target)
        for target in FORMATS
    }


def fold_files(space: Workspace) -> dict[str, Any]:
    """Return folds of each format, and of images that belong together."""
    collected = {
        source: write_folder(space, f"folds-{source}", "folds", f"few-{source}", "-k", 2)
        for source in FORMATS
    }
    grouped = ("folds", "few", "-k", 2, "--group-by", r"^(\d{5})", "--seed", 1)
    return collected | {"grouped": write_folder(space, "folds-grouped", *grouped)}


def evaluate_runs(space: Workspace) -> dict[str, Any]:
    """Return scores of detections and of the mending, as text and as files."""
    run = ("evaluate", "runs/mend", "--data", "toys:val", "--truth", "noisy/truth.parquet")
    shown = call(space, *run, "--detections-out", "detections.json")
    by_file = ("evaluate", "--predictions", "detections.json", "--data", "toys:val", "--json")
    truth = ("evaluate", "runs/mend", "--truth", "toys:train", "--json")
    return {
        "run": answer(space, shown),
        "evaluation.json": read_json(space, space.folder / "runs/mend/evaluation.json"),
        "detections": digest((space.folder / "detections.json").read_bytes()),
        "predictions": json.loads(call(space, *by_file).stdout),
        "mending": json.loads(call(space, *truth).stdout),
    }


def report_runs(space: Workspace) -> dict[str, Any]:
    """Return figures and parts of the reports of a run."""
    run = needed_run(space, "baseline")
    plain_words = ("report", "runs/mend", "--out", "plain.html", "--no-embed")
    with_truth = ("--truth", "noisy/truth.parquet", "--baseline", run, "--beside", run)
    done = call(space, "report", "runs/mend", *with_truth)
    call(space, *plain_words)
    return {
        "answer": answer(space, done),
        "page": page(space, space.folder / "runs/mend/report.html"),
        "figures": read_tree(space, space.folder / "runs/mend/figures"),
        "plain page": page(space, space.folder / "plain.html"),
        "plain figures": read_tree(space, space.folder / "plain-figures"),
        "pictures": pictures(space.folder / "plain-images"),
        "files": [name for name in names_in(space.folder / "runs/mend") if ".jpg" not in name],
    }


def page(space: Workspace, path: Path) -> dict[str, Any]:
    """Return the parts of a report: scripts, styles, data by key, and the rest as text.

    The page shows the day on which the training ended. Pictures are named by a hash of the path
    and the date of their image, so names are left out.
    """
    text = re.sub(r"\b\d{4}-\d\d-\d\d\b", "<day>", plain(space, path.read_text()))
    text = re.sub(r"\b[0-9a-f]{32}(\.jpg)?\b", "<picture>", text)
    collected: dict[str, Any] = {}
    for number, (kind, inner) in enumerate(
        re.findall(r"<((?:script|style|svg)[^>]*)>(.*?)</(?:script|style|svg)>", text, re.DOTALL)
    ):
        name = f"{number} {kind[:60]}"
        if "json" in kind:
            data = json.loads(inner)
            collected[name] = {key: digest(json.dumps(value)) for key, value in data.items()}
        else:
            collected[name] = digest(inner)
    rest = re.sub(r"(<(script|style|svg)[^>]*>).*?(</\2>)", r"\1\3", text, flags=re.DOTALL)
    return collected | {"rest": re.sub(r"data:image/[\w;,+/=]+", "<picture>", rest)}


def pictures(folder: Path) -> dict[str, Any]:
    """Return number and common digest of pictures whose names are volatile."""
    contents = sorted(digest(path.read_bytes()) for path in folder.glob("*.jpg"))
    return {"number": len(contents), "content": digest("\n".join(contents))}


def apply_changes(space: Workspace) -> dict[str, Any]:
    """Return mended datasets of a run and of an audit in each format, and what revert leaves."""
    collected = {}
    for name, words in (
        ("run", ("apply", "runs/mend")),
        ("audit", ("apply", "audit", "--precision", PRECISION)),
    ):
        for target in FORMATS:
            out = f"mended-{name}-{target}"
            collected[f"{name} to {target}"] = write_folder(space, out, *words, "--to", target)
            collected[f"{name} to {target}, reverted"] = revert_changes(space, out, target)
    choices = ("--only", "labels", "--min-confidence", 0.3, "--discarded", "drop")
    collected["run, chosen"] = write_folder(space, "mended-chosen", "apply", "runs/mend", *choices)
    marked = ("--discarded", "mark", "--images-as", "none", "--json")
    collected["run, marked"] = write_folder(space, "mended-marked", "apply", "runs/mend", *marked)
    shown = call(space, "diff", "noisy", "mended-chosen", "--all", statuses=(1,))
    counted = call(space, "diff", "noisy", "mended-marked", "--json", statuses=(1,))
    return collected | {"diff": answer(space, shown), "diff as JSON": json.loads(counted.stdout)}


def revert_changes(space: Workspace, folder: str, target: str) -> dict[str, Any]:
    """Revert a copy of a mended dataset, and compare its files with those before the mending."""
    copy, unmended = f"{folder}-reverted", f"{folder}-unmended"
    shutil.copytree(space.folder / folder, space.folder / copy, symlinks=True)
    done = call(space, "revert", copy)
    before = write_folder(space, unmended, "convert", "noisy", "--to", target)["files"]
    after = read_tree(space, space.folder / copy)
    return {"answer": answer(space, done), "files": after, "equals the input": after == before}


def export_runs(space: Workspace) -> dict[str, Any]:
    """Return what is handed over to every tool, of an audit and of a run."""
    collected = {}
    for tool in TOOLS:
        collected[f"audit to {tool}"] = write_folder(
            space, f"to-{tool}", "export", "audit", "--to", tool
        )
        words = ("export", "runs/mend", "--to", tool, "--most", 20)
        collected[f"run to {tool}"] = write_folder(space, f"run-to-{tool}", *words)
    return collected


def import_verdicts(space: Workspace) -> dict[str, Any]:
    """Return verdicts of imports from both tools, and the dataset that follows from them."""
    answers = {"label-studio": label_studio_file(space), "cvat": cvat_file(space)}
    collected = {}
    for tool, file in answers.items():
        run = f"audit-{tool}"
        shutil.copytree(space.folder / "audit", space.folder / run)
        done = call(space, "import", run, file, "--export", f"to-{tool}")
        verdicts = read_lines(space, space.folder / run / "verdicts.jsonl")
        collected[tool] = {
            "answer": answer(space, done),
            "verdicts": {str(k): verdict for k, verdict in enumerate(verdicts)},
            "applied": write_folder(space, f"mended-{tool}", "apply", run),
        }
    return collected


def label_studio_file(space: Workspace) -> str:
    """Write what Label Studio exports after people left, moved, relabelled or deleted boxes."""
    tasks = json.loads((space.folder / "to-label-studio/tasks.json").read_text())
    for number, task in enumerate(tasks, 1):
        regions = json.loads(json.dumps(task["predictions"][0]["result"]))
        for place, region in enumerate(regions):
            if (number + place) % 4 == 1:
                region["value"]["x"] = max(0, region["value"]["x"] - 4)
            elif (number + place) % 4 == 2:
                region["value"]["rectanglelabels"] = ["gear"]
        time = f"2026-11-01T10:{number % 60:02}:00.000000Z"
        task["annotations"] = [
            {
                "id": 1000 + number,
                "completed_by": {"id": 7, "email": "kim@example.org"},
                "result": [one for k, one in enumerate(regions) if (number + k) % 4],
                "was_cancelled": number % 7 == 0,
                "created_at": time,
                "updated_at": time,
            }
        ]
        task |= {"id": number, "project": 1}
    (space.folder / "project-1.json").write_text(json.dumps(tasks))
    return "project-1.json"


def cvat_file(space: Workspace) -> str:
    """Write what CVAT exports after people left, moved or deleted boxes."""
    tree = ElementTree.parse(space.folder / "to-cvat/annotations.xml")
    for image in tree.getroot().findall("image"):
        for place, box in enumerate(image.findall("box")):
            if place % 3 == 1:
                box.set("label", "gear")
            elif place % 3 == 2:
                image.remove(box)
    tree.write(space.folder / "task.xml")
    return "task.xml"


def demo(space: Workspace) -> dict[str, Any]:
    """Return the figures and the datasets of a short demo."""
    done = call(space, "demo", "--out", "demo", "--images", 30, "--epochs", 1)
    folder = space.folder / "demo"
    return {
        "stdout": plain(space, done.stdout),
        "files": [name for name in names_in(folder) if ".jpg" not in name],
        "summary": read_json(space, folder / "summary.json"),
        "picture": read_bytes(space, folder / "demo.png"),
        **{name: read_tree(space, folder / name) for name in ("clean", "noisy", "mended")},
    }
