"""Noisy data of cells: made once, whole, in any format, and made again where images are gone."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from boxmend.bench.grids import noisy_data
from boxmend.bench.grids.jobs import Job, read_job
from boxmend.bench.grids.noisy_data import addresses_in, mended_data
from boxmend.bench.grids.planning import Plan
from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.noise import write_noisy
from boxmend.errors import BoxmendError, DataError
from boxmend.scoring.corrections import known_truth
from tests.bench.grid_worlds import NOISY, ready


def job_of(plan: Plan) -> Job:
    return read_job(plan.folder(plan.cells[0]))


def share_wrong(noisy: Dataset, folder: Path) -> float:
    truth = known_truth(folder, noisy)
    return float((truth.labels != noisy.labels).mean())


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
@pytest.mark.parametrize("number", [1, 2])
def test_noise_is_made_in_every_format_from_one_address_or_two(
    kind: str, number: int, tmp_path: Path
) -> None:
    addresses = []
    for seed in range(number):
        toys = tmp_path / f"toys{seed}"
        made = ["synth", "--images", "15", "--seed", str(seed), "--format", kind]
        assert run([*made, "--out", str(toys)]) == 0
        if kind == "voc" and seed:  # names of images differ between the years of VOC
            for path in sorted(toys.glob("*/*.*")):
                path.rename(path.with_name(f"b{path.name}"))
            lists = toys / "ImageSets" / "Main" / "train.txt"
            lists.write_text("".join(f"b{word}\n" for word in lists.read_text().split()))
        addresses.append(f"{toys}:train")
    plan = ready(Path(addresses[0][:-6]), tmp_path / "out", data=tuple(addresses))
    job = job_of(plan)
    result = noisy_data.noisy_data(plan.root, job)
    folder = plan.root / "noise" / "label40-box40-0"
    assert addresses_in(folder) == result
    clean, noisy = load(*addresses), load(*result)
    assert (len(noisy.images), len(noisy)) == (len(clean.images), len(clean))
    assert share_wrong(noisy, folder) == pytest.approx(0.4, abs=0.5 / len(clean))
    assert noisy.boxes.shape == clean.boxes.shape
    assert all(Path(path).is_file() for path in noisy.images.paths)
    assert not list(plan.root.glob("noise/.*.new"))


def test_noise_is_made_once_however_many_ask(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ready(toys, tmp_path)
    made = []

    def count_call(*arguments: object) -> object:
        made.append(arguments)
        return write_noisy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(noisy_data, "write_noisy", count_call)
    threads = [
        threading.Thread(target=noisy_data.noisy_data, args=(plan.root, job_of(plan)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for one in threads:
        one.join()
    assert len(made) == 1


def test_clean_cells_share_a_folder_with_its_truth(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=("label0-box0-*",), seeds=(0, 1))
    listed = [noisy_data.noisy_data(plan.root, read_job(plan.folder(cell))) for cell in plan.cells]
    assert listed[0] == listed[1]
    folder = plan.root / "noise" / "label0-box0"
    noisy = load(*listed[0])
    assert share_wrong(noisy, folder) == 0
    assert noisy.boxes.tolist() == load(f"{toys}:train").boxes.tolist()


def test_annotations_are_missing_and_spurious_where_cells_say_so(
    toys: Path, tmp_path: Path
) -> None:
    plan = ready(toys, tmp_path, "presence", only=("*missing20-mend-0", "*spurious40-mend-0"))
    clean, changed = len(load(f"{toys}:train")), {}
    for cell in plan.cells:
        job = read_job(plan.folder(cell))
        noisy = load(*noisy_data.noisy_data(plan.root, job))
        known_truth(noisy_data.truth_of(plan.root, job), noisy)  # belongs to it
        changed[job.noise_folder] = len(noisy) - clean
    assert changed == {
        "label0-box0-missing20-0": -round(0.2 * clean),
        "label0-box0-spurious40-0": round(0.4 * clean),
    }


def test_the_noise_of_una_is_made_with_its_truth(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, "una", only=("*una20-mend-0",))
    (cell,) = plan.cells
    noisy = load(*noisy_data.noisy_data(plan.root, read_job(plan.folder(cell))))
    truth = known_truth(noisy_data.truth_of(plan.root, read_job(plan.folder(cell))), noisy)
    clean = len(load(f"{toys}:train"))
    assert truth.is_spurious.sum() == round(0.2 * clean)
    assert len(noisy) == clean - round(0.2 * clean) + round(0.2 * clean)  # as many are missing
    wrong = (noisy.labels != truth.labels)[~truth.is_spurious].mean()
    assert 0 < wrong < 0.3  # 20 %, of which 1 of 6 stay right


def test_data_whose_images_are_gone_are_made_again_and_come_out_the_same(tmp_path: Path) -> None:
    toys = tmp_path / "toys"
    assert run(["synth", "--images", "10", "--out", str(toys)]) == 0
    plan = ready(toys, tmp_path / "out")
    job = job_of(plan)
    noisy_data.noisy_data(plan.root, job)
    folder = plan.root / "noise" / "label40-box40-0"
    record = (folder / "noise.json").read_bytes()
    shutil.rmtree(folder / "images")
    (address,) = noisy_data.noisy_data(plan.root, job)
    assert Path(load(address).images.paths[0]).is_file()
    assert (folder / "noise.json").read_bytes() == record

    shutil.rmtree(folder / "images")
    document = json.loads(record)
    document["files"] = dict.fromkeys(document["files"], "0" * 64)
    del document["digest"]
    (folder / "noise.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="new noise on the same data is different"):
        noisy_data.noisy_data(plan.root, job)


def test_data_that_changed_since_are_refused(tmp_path: Path) -> None:
    toys = tmp_path / "toys"
    assert run(["synth", "--images", "10", "--out", str(toys)]) == 0
    plan = ready(toys, tmp_path / "out")
    shutil.rmtree(toys)
    assert run(["synth", "--images", "10", "--seed", "1", "--out", str(toys)]) == 0
    with pytest.raises(DataError, match="training data changed since the grid was started"):
        noisy_data.noisy_data(plan.root, job_of(plan))


def test_what_was_left_by_a_kill_is_no_hindrance(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    (plan.root / "noise" / ".label40-box40-0.new" / "half").mkdir(parents=True)
    (address,) = noisy_data.noisy_data(plan.root, job_of(plan))
    assert len(load(address))


def test_the_second_stage_waits_for_the_first(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, "two-stage", only=("*-two-stage-0",))
    assert [cell.name for cell in plan.cells] == [NOISY.name, "label40-box40-two-stage-0"]
    with pytest.raises(BoxmendError, match="needs label40-box40-mend-0, which is not done"):
        mended_data(plan.root, read_job(plan.folder(plan.cells[1])))


def test_unusable_data_are_refused_before_anything_is_trained(toys: Path, tmp_path: Path) -> None:
    document = json.loads((toys / "instances_val.json").read_text())
    bare = tmp_path / "bare" / "instances_val.json"
    bare.parent.mkdir()
    bare.write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"--val .*its images are missing, like .*copy them"):
        ready(toys, tmp_path / "out", val=(str(bare),))
    for category in document["categories"]:
        category["name"] = f"other {category['name']}"
    bare.write_text(json.dumps(document))
    (bare.parent / "images").symlink_to(toys / "images")
    with pytest.raises(DataError, match="has no class of the training data"):
        ready(toys, tmp_path / "out", val=(str(bare),))
    assert not (tmp_path / "out").exists()
