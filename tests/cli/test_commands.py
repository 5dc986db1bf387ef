"""The command line as a script sees it: text, JSON, exit status, and what is left on disk."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import boxmend
from boxmend.cli import COMMANDS, run
from boxmend.noise import fingerprint


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toys") / "toys"
    assert run(["synth", "--images", "30", "--out", str(out)]) == 0
    return out


def answer(capsys: pytest.CaptureFixture[str], *tokens: object) -> Any:
    """Run a command with --json; its status and what it printed."""
    capsys.readouterr()
    status = run([*map(str, tokens), "--json"])
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if printed.out else printed.err


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def coco(folder: Path, **changes: Any) -> Path:
    """A COCO file of one image and one annotation, with changes to the annotation."""
    annotation = {"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]} | changes
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 20}],
        "annotations": [annotation],
        "categories": [{"id": 1, "name": "cat"}],
    }
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"boxmend {command}" in printed
    assert "--json" in printed


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"boxmend {boxmend.__version__}\n"


@pytest.mark.parametrize(
    "tokens",
    [
        ["mend"],
        ["check"],
        ["check", "/nowhere"],
        ["check", "TOYS:nosuchsplit"],
        ["convert", "TOYS", "--to", "csv", "--out", "OUT"],
        ["convert", "TOYS", "--to", "voc"],
        ["noise", "TOYS", "--labels", "symmetric:1.4", "--out", "OUT"],
        ["noise", "TOYS", "--labels", "sometimes:0.4", "--out", "OUT"],
        ["noise", "TOYS", "--missing", "2", "--out", "OUT"],
        ["synth", "--images", "0", "--out", "OUT"],
        ["check", "TOYS", "--fix"],
        ["check", "TOYS", "--out", "OUT"],
        ["diff", "TOYS"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_two_and_a_message(
    tokens: list[str], toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    filled = [token.replace("TOYS", str(toys)).replace("OUT", str(out)) for token in tokens]
    assert run(filled) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err) > 10
    assert not out.exists()


def test_info_tells_versions_devices_and_formats(capsys: pytest.CaptureFixture[str]) -> None:
    status, facts = answer(capsys, "info")
    assert status == 0
    assert facts["boxmend"] == boxmend.__version__
    assert set(facts["formats"]) == {"coco", "voc", "yolo"}
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["devices"][0].startswith("cpu")
    assert run(["info"]) == 0
    assert "numpy" in capsys.readouterr().out


def test_check_finds_nothing_in_the_drawn_dataset(
    toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, result = answer(capsys, "check", toys)
    assert status == 0
    assert (result["errors"], result["warnings"], result["findings"]) == (0, 0, [])
    assert result["statistics"]["images"] == 30
    assert run(["check", str(toys)]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"bbox": [10, 10, 50, 5]}, "box-outside"),
        ({"bbox": [10, 10, -5, 5]}, "box-flipped"),
        ({"bbox": [10, 10, 0, 5]}, "box-empty"),
        ({"bbox": [float("nan"), 10, 4, 5]}, "box-not-finite"),
        ({"category_id": 9}, "unknown-category"),
        ({"image_id": 9}, "unknown-image"),
    ],
)
def test_check_names_file_and_annotation_of_every_error(
    changes: dict[str, Any], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path, **changes)
    status, result = answer(capsys, "check", path, "--no-open-images")
    assert status == 1
    (finding,) = [one for one in result["findings"] if one["severity"] == "error"]
    assert (finding["kind"], finding["annotation_id"]) == (kind, 7)
    assert finding["file"] == str(path)
    assert run(["check", str(path), "--no-open-images"]) == 1
    assert f"error {kind}: {path}, annotation 7" in capsys.readouterr().out


def test_check_lists_missing_images_unless_told_not_to_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    status, result = answer(capsys, "check", path)
    assert status == 1
    assert [one["kind"] for one in result["findings"]] == ["missing-image"]
    assert answer(capsys, "check", path, "--no-open-images")[0] == 0


def test_fix_clips_drops_and_leaves_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    document = json.loads(path.read_text())
    (good,) = document["annotations"]
    document["annotations"] = [
        good,
        good | {"id": 8, "bbox": [10, 10, 50, 5]},
        good | {"id": 9, "bbox": [30, 30, 5, 5]},
        good | {"id": 10, "category_id": 5, "bbox": [1, 1, 2, 2]},
    ]
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    out = tmp_path / "fixed"
    status, result = answer(capsys, "check", path, "--no-open-images", "--fix", "--out", out)
    assert status == 1  # the unknown category is left
    assert result["errors"] == 1
    actions = {one["annotation_id"]: one["action"] for one in result["repairs"]}
    assert actions == {8: "clipped", 9: "dropped"}
    written = json.loads((out / path.name).read_text())
    boxes = {one["id"]: one["bbox"] for one in written["annotations"]}
    assert boxes == {7: [1, 2, 3, 4], 8: [10, 10, 10, 5], 10: [1, 1, 2, 2]}
    assert path.read_bytes() == before
    del document["annotations"][3]
    path.write_text(json.dumps(document))
    again = tmp_path / "again"
    status, result = answer(capsys, "check", path, "--no-open-images", "--fix", "--out", again)
    assert (status, result["errors"]) == (0, 0)
    assert run(["check", str(again), "--no-open-images"]) == 0


def test_converting_there_and_back_keeps_boxes_to_a_hundredth(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    previous = toys
    for step, target in enumerate(["voc", "yolo", "coco"]):
        out = tmp_path / f"{step}-{target}"
        status, result = answer(capsys, "convert", previous, "--to", target, "--out", out)
        assert status == 0, result
        assert (result["format"], result["lost"]) == (target, [])
        previous = out
    status, result = answer(capsys, "diff", toys, previous)
    assert status in (0, 1)  # ids are others; boxes and labels are not
    for split in ("train", "val"):
        old, new = boxmend.load(f"{toys}:{split}"), boxmend.load(f"{previous}:{split}")
        assert old.images.file_names == new.images.file_names
        np.testing.assert_allclose(new.boxes, old.boxes, atol=0.01)
        assert np.array_equal(new.labels, old.labels)


def test_a_lossy_conversion_stops_unless_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path, iscrowd=1, segmentation=[[1, 2, 4, 2, 4, 6]])
    out = tmp_path / "voc"
    tokens = ["convert", path, "--to", "voc", "--out", out]
    status, message = answer(capsys, *tokens)
    assert status == 3
    assert "crowd" in message
    assert "segmentation" in message
    assert "--allow-lossy" in message
    assert not out.exists()
    status, result = answer(capsys, *tokens, "--allow-lossy")
    assert status == 0
    assert len(result["lost"]) == 2


@pytest.mark.parametrize("images_as", ["link", "copy", "none"])
def test_images_are_linked_copied_or_left(images_as: str, toys: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tokens = ["convert", f"{toys}:train", "--to", "coco", "--images-as", images_as]
    assert run([*tokens, "--out", str(out)]) == 0
    images = list(out.rglob("*.png"))
    assert len(images) == (0 if images_as == "none" else 24)
    assert all(path.is_symlink() == (images_as == "link") for path in images)
    assert (out / "instances_train.json").read_bytes() == (
        toys / "instances_train.json"
    ).read_bytes()


def test_diff_exits_with_one_where_anything_differs(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", str(toys), str(toys)]) == 0
    assert "same" in capsys.readouterr().out
    dataset = boxmend.load(f"{toys}:val")
    dataset.labels[0] = (dataset.labels[0] + 1) % 6
    dataset.boxes[1] += 1
    dataset.save(tmp_path / "other")
    status, result = answer(capsys, "diff", f"{toys}:val", tmp_path / "other")
    assert status == 1
    assert (result["label_changed"], result["box_changed"]) == (1, 1)
    kinds = {one["annotation_id"]: one["kinds"] for one in result["differences"]}
    assert kinds == {
        int(dataset.annotation_ids[0]): ["label"],
        int(dataset.annotation_ids[1]): ["box"],
    }
    assert run(["diff", f"{toys}:val", str(tmp_path / "other")]) == 1
    assert " -> " in capsys.readouterr().out


def test_noise_writes_the_dataset_the_truth_and_the_record(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes(toys)
    out = tmp_path / "noisy"
    tokens = ["noise", f"{toys}:train", "--labels", "symmetric:0.4", "--boxes", "uniform:0.2"]
    tokens += ["--missing", "0.1", "--spurious", "0.1", "--duplicate", "0.05", "--seed", "5"]
    status, result = answer(capsys, *tokens, "--out", out)
    assert status == 0
    assert hashes(toys) == before
    n = len(boxmend.load(f"{toys}:train"))
    counts = result["counts"]
    assert (counts["missing"], counts["spurious"], counts["duplicate"]) == (
        round(0.1 * n),
        round(0.1 * n),
        round(0.05 * n),
    )
    noisy = boxmend.load(out)
    truth = pq.read_table(out / "truth.parquet")
    present = [one for one in truth["annotation_id"].to_pylist() if one is not None]
    assert sorted(present) == sorted(noisy.annotation_ids.tolist())
    record = json.loads((out / "noise.json").read_text())
    written = hashlib.sha256((out / "instances_train.json").read_bytes()).hexdigest()
    assert record["sha256"] == result["sha256"] == fingerprint(record["files"]) == written
    again = tmp_path / "again"
    assert answer(capsys, *tokens, "--out", again)[1]["sha256"] == result["sha256"]


@pytest.mark.parametrize("target", ["voc", "yolo"])
def test_two_label_rates_with_one_seed_share_the_same_boxes(
    target: str, toys: Path, tmp_path: Path
) -> None:
    clean = tmp_path / "clean"
    assert run(["convert", f"{toys}:train", "--to", target, "--out", str(clean)]) == 0
    for rate in ("0.2", "0.6"):
        tokens = ["noise", str(clean), "--boxes", "uniform:0.4", "--out", str(tmp_path / rate)]
        assert run([*tokens, "--labels", f"symmetric:{rate}"]) == 0
    low, high = boxmend.load(tmp_path / "0.2"), boxmend.load(tmp_path / "0.6")
    assert np.array_equal(low.boxes, high.boxes)
    wrong = [dataset.labels != boxmend.load(clean).labels for dataset in (low, high)]
    n = len(low)
    assert [one.sum() for one in wrong] == [round(0.2 * n), round(0.6 * n)]
    assert not (wrong[0] & ~wrong[1]).any()  # what is wrong at 20 % is wrong at 60 %


@pytest.mark.parametrize("command", ["convert", "noise", "synth"])
def test_an_output_folder_in_use_is_refused(command: str, toys: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    tokens = {
        "convert": ["convert", str(toys), "--to", "voc"],
        "noise": ["noise", str(toys)],
        "synth": ["synth"],
    }[command]
    assert run([*tokens, "--out", str(tmp_path)]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b'{"images": [{"id": 1, "file_na'),
        ("a.json", b"[" * 100_000),
        ("a.json", b'{"images": [], "annotations": ' + b'[{"a":' * 50_000),
        ("a.json", b"\xff\xfe\x00"),
        ("a.json", b""),
        ("data.yaml", b"names: [a\ntrain: ]["),
        ("data.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nnames: *c"),
    ],
)
def test_broken_files_end_with_a_message_that_names_them(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    out = tmp_path / "out"
    for tokens in (["check"], ["noise", "--out", str(out)]):
        assert run([tokens[0], str(tmp_path / name), *tokens[1:]]) in (1, 3)
        printed = capsys.readouterr()
        assert name in printed.err + printed.out
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_a_folder_that_is_no_dataset_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(tmp_path)]) == 3
    assert "no dataset found" in capsys.readouterr().err


def test_duplicate_ids_are_findings_of_check_and_refused_by_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    document = json.loads(path.read_text())
    document["annotations"] *= 2
    path.write_text(json.dumps(document))
    status, result = answer(capsys, "check", path, "--no-open-images")
    assert status == 1
    assert "duplicate-id" in {one["kind"] for one in result["findings"]}
    assert run(["convert", str(path), "--to", "voc", "--out", str(tmp_path / "out")]) == 3
    message = capsys.readouterr().err
    assert "annotation 7" in message
    assert str(path) in message


def test_a_name_that_climbs_out_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    path.write_text(path.read_text().replace("a.jpg", "../../a.jpg"))
    assert run(["convert", str(path), "--to", "yolo", "--out", str(tmp_path / "out")]) == 3
    assert "../../a.jpg" in capsys.readouterr().err
    assert run(["check", str(path)]) == 1
    assert "unsafe-name" in capsys.readouterr().out


def in_a_process(tokens: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "boxmend", *tokens]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_a_full_disk_leaves_nothing(toys: Path, tmp_path: Path) -> None:
    def limit() -> None:  # files may not grow beyond 4 KiB: writing fails as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    tokens = ["noise", str(toys), "--labels", "symmetric:0.4", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = in_a_process(tokens, preexec_fn=limit, env=environment)
    assert done.returncode == 3, done.stderr
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_that_closes_early_is_no_failure(toys: Path) -> None:
    command = f"{sys.executable} -m boxmend diff {toys}:train {toys}:val --all --json | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout) == 10


def test_results_go_to_stdout_and_talk_to_stderr(toys: Path, tmp_path: Path) -> None:
    done = in_a_process(["noise", str(toys), "--out", str(tmp_path / "out")])
    assert done.returncode == 0
    assert "wrote" in done.stderr
    assert "wrote" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # plain text when piped
    done = in_a_process(["check", str(toys), "--json"])
    assert json.loads(done.stdout)["errors"] == 0
    assert done.stderr == ""


def test_the_demo_leaves_datasets_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    status, facts = answer(capsys, "demo", "--images", "20", "--out", out)
    assert status == 0
    assert (out / "noise.png").stat().st_size > 10_000
    clean, noisy = boxmend.load(out / "clean:train"), boxmend.load(out / "noisy")
    assert facts["labels_wrong"] == (clean.labels != noisy.labels).sum() == round(0.4 * len(clean))
    assert 0.4 < facts["mean_iou"] < 0.6


def test_training_without_torch_says_what_to_install(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("boxmend.training")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert run(["train", str(toys), "--out", str(tmp_path / "run")]) == 2
    assert "boxmend[train]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
