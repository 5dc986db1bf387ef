"""What `apply` refuses: the message names what is wrong and what to do, and nothing is written."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend import ApplySettings
from boxmend.data.formats.writing import WriteOptions
from boxmend.errors import BoxmendError, DataError, LossyError, OutputError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs.ledger import Ledger
from tests.fabricated_runs import (
    RELABELLED,
    Visit,
    bytes_of,
    drawn,
    entries_of,
    facts_of,
    finished_run,
)

VISITS = [Visit(epoch, 0, RELABELLED, 1, 1.0, (12, 10, 30, 50)) for epoch in range(5)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(drawn(tmp_path, "coco"))


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Path:
    return finished_run(tmp_path / "run", str(data), VISITS, rows_per_part=2)


def refusal(run: Path, error: type[BoxmendError], **options: Any) -> str:
    """The message with which a run is refused; nothing is left behind."""
    folder = run.parent
    before = sorted(folder.iterdir())
    with pytest.raises(error) as caught:
        boxmend.apply(run, folder / "out", **options)
    assert sorted(folder.iterdir()) == before
    return str(caught.value)


def rewrite(path: Path, change: Any) -> None:
    document = json.loads(path.read_bytes())
    document.pop("digest", None)
    change(document)
    path.write_text(json.dumps(document))


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere", UsageError)
    (tmp_path / "empty").mkdir()
    assert "is not the folder of a run" in refusal(tmp_path / "empty", DataError)


def test_an_unfinished_run(run: Path) -> None:
    (run / "finished").unlink()
    assert "unfinished; continue it with `boxmend train --resume`" in refusal(run, DataError)


@pytest.mark.parametrize(
    "edit",
    [
        lambda document: document["annotations"][3].update(category_id=2),
        lambda document: document["annotations"][3].update(bbox=[50, 50, 40, 20.5]),
        lambda document: document["annotations"][3].update(iscrowd=1),
        lambda document: document["annotations"][3].update(id=99),
        lambda document: document["images"][0].update(file_name="c.png"),
    ],
)
def test_annotations_that_were_edited_since(run: Path, data: Path, edit: Any) -> None:
    rewrite(data / "instances_train.json", edit)
    message = refusal(run, DataError)
    assert f"{data}: not the data that {run} was trained on" in message
    assert "train again" in message


def test_another_number_of_annotations_and_other_names_are_reported(run: Path, data: Path) -> None:
    rewrite(data / "instances_train.json", lambda document: document["annotations"].pop())
    assert "3 annotations instead of 4" in refusal(run, DataError)
    rewrite(data / "instances_train.json", lambda d: d["categories"][0].update(name="lorry"))
    assert "other label names" in refusal(run, DataError)


def test_what_training_does_not_see_may_change(run: Path, data: Path, tmp_path: Path) -> None:
    rewrite(data / "instances_train.json", lambda document: document.update(info={"year": 1}))
    assert boxmend.apply(run, tmp_path / "out").to_json()["changed"] == 1


def test_data_that_are_gone_or_moved(run: Path, data: Path, tmp_path: Path) -> None:
    data.rename(tmp_path / "moved")
    message = refusal(run, DataError)
    assert f"the data of the run are gone: {data}: no such file" in message
    assert "name their new place by --data" in message
    assert "no such file" in refusal(run, UsageError, data=[str(tmp_path / "nowhere")])
    other = drawn(tmp_path / "other", "coco", [(1, 1, 9, 9)] * 4)
    assert "not the data" in refusal(run, DataError, data=[other])
    assert "the dataset in memory" in refusal(run, DataError, data=boxmend.load(other))
    result = boxmend.apply(run, tmp_path / "out", data=str(tmp_path / "moved"))
    assert result.to_json()["labels_changed"] == 1


def test_a_run_without_an_address(run: Path) -> None:
    rewrite(run / "run.json", lambda document: document["facts"].update(addresses=[]))
    assert "does not have the address of its data" in refusal(run, DataError)


def test_a_run_that_names_an_address_thousands_of_times_is_refused_before_reading(
    tmp_path: Path,
) -> None:
    address = drawn(tmp_path / "data", "coco")
    run = finished_run(tmp_path / "run", address, [])

    def repeat(number: int) -> None:
        rewrite(
            run / "run.json",
            lambda document: document["facts"].update(addresses=[address] * number),
        )

    repeat(101)
    message = refusal(run, DataError)
    assert "run.json: has 101 addresses of data for" in message
    assert "--data" in message
    repeat(100)  # read, and found to be other data
    assert "not the data that" in refusal(run, DataError)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("run.json", lambda d: d["facts"].pop("data"), "no fingerprint"),
        ("run.json", lambda d: d["facts"]["data"].pop("sha256"), "no fingerprint"),
        ("settings.json", lambda d: d.clear(), "length of warm-up"),
        ("finished", lambda d: d.update(steps="many"), "length of warm-up"),
    ],
)
def test_a_run_that_does_not_say_enough(run: Path, file: str, change: Any, words: str) -> None:
    rewrite(run / file, change)
    assert words in refusal(run, DataError)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"warm_up": 8.25}, "settings.json: warm_up is 8.25"),
        ({"warm_up": "0.25"}, "settings.json: warm_up: Expected `float`, got `str`"),
        ({"optimisation": {"lr": "fast"}}, "settings.json: optimisation.lr: Expected"),
    ],
)
def test_settings_that_no_training_can_have(run: Path, change: dict[str, Any], words: str) -> None:
    rewrite(run / "settings.json", lambda document: document.update(change))
    assert words in refusal(run, DataError)


def test_settings_edited_by_hand_and_those_of_earlier_versions_are_read(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(run / "settings.json", lambda document: document.update(seed=3, no_longer_there=1))
    assert boxmend.apply(run, tmp_path / "out").to_json()["labels_changed"] == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("part", "words"), [(0, "is missing"), (1, "is missing"), (2, "the last part is missing")]
)
def test_a_ledger_with_a_missing_part(run: Path, part: int, words: str) -> None:
    (run / f"ledger/part-00000{part}.parquet").unlink()
    assert words in refusal(run, DataError)


def test_a_ledger_that_is_not_there(run: Path) -> None:
    shutil.rmtree(run / "ledger")
    assert "cannot be read as a ledger" in refusal(run, DataError)


def test_a_damaged_part(run: Path) -> None:
    path = run / "ledger/part-000001.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    assert "part-000001.parquet: cannot be read" in refusal(run, DataError)


def foreign_run(tmp_path: Path, data: Path, other: boxmend.Dataset, visits: list[Visit]) -> Path:
    """A run on `data` whose ledger was made with another dataset."""
    dataset = boxmend.load(data)
    run = runs.create(tmp_path / "foreign", {"warm_up": 0.0}, facts_of(dataset, [str(data)]))
    book = Ledger.create(run.path)
    book.append(entries_of(other, visits))
    book.flush()
    run.finish({"steps": 10, "ledger_rows": book.num_rows})
    return run.path


def test_a_ledger_of_other_annotations(tmp_path: Path, data: Path) -> None:
    more = boxmend.load(drawn(tmp_path / "more", "coco", [(1, 1, 9, 9)] * 9))
    run = foreign_run(tmp_path, data, more, [Visit(0, 8)])
    message = refusal(run, DataError)
    assert "has annotation 18, which the dataset does not have" in message
    assert "the ledger belongs to another run" in message


def test_a_ledger_with_ids_of_another_kind(tmp_path: Path, data: Path) -> None:
    voc = boxmend.load(drawn(tmp_path / "voc", "voc"))
    run = foreign_run(tmp_path, data, voc, [Visit(0, 0)])
    assert "has annotation 'a:0'" in refusal(run, DataError)


def test_a_ledger_with_other_labels(tmp_path: Path, data: Path) -> None:
    own = boxmend.load(data)
    for label in (3, -1):
        run = foreign_run(tmp_path / str(label), data, own, [Visit(0, 0, RELABELLED, label)])
        assert "labels beyond the 3 of the dataset" in refusal(run, DataError)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"only": "names"}, "only is 'names'; expected labels, boxes"),
        ({"only": "labels,"}, "only is ''"),
        ({"only": ()}, "only is empty"),
        ({"min_confidence": 1.5}, "min_confidence is 1.5; expected a number from 0 to 1"),
        ({"min_confidence": -0.1}, "min_confidence is -0.1"),
        ({"min_confidence": float("nan")}, "min_confidence is nan"),
        ({"min_confidence": "high"}, "min_confidence is 'high'"),
        ({"discarded": "burn"}, "discarded is 'burn'; expected keep or drop or mark"),
    ],
)
def test_settings_out_of_range(choices: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        ApplySettings(**choices)
    assert words in str(caught.value)


def test_a_format_that_is_not_known(run: Path) -> None:
    assert "unknown format 'tfrecord'" in refusal(run, UsageError, format="tfrecord")


def test_yolo_cannot_mark(run: Path, tmp_path: Path) -> None:
    mark = ApplySettings(discarded="mark")
    message = refusal(run, UsageError, settings=mark, format="yolo")
    assert "YOLO has no flag for" in message
    assert "--discarded keep or drop" in message
    native = finished_run(tmp_path / "run-2", drawn(tmp_path / "y", "yolo"), VISITS)
    assert "YOLO has no flag" in refusal(native, UsageError, settings=mark)


def test_a_conversion_that_loses_something_needs_permission(tmp_path: Path, data: Path) -> None:
    rewrite(data / "instances_train.json", lambda d: d["annotations"][1].update(iscrowd=1))
    run = finished_run(tmp_path / "run", str(data), VISITS)
    assert "1 crowd flags" in refusal(run, LossyError, format="voc")
    result = boxmend.apply(
        run, tmp_path / "out", format="voc", options=WriteOptions(allow_lossy=True)
    )
    assert result.saved.losses == ("1 crowd flags (iscrowd)",)


def test_a_folder_that_is_not_empty(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        boxmend.apply(run, out)
    assert bytes_of(out) == {"precious": b"mine"}


def test_an_annotation_file_that_has_the_name_of_the_patch(tmp_path: Path, data: Path) -> None:
    (data / "instances_train.json").rename(data / "patch.json")
    run = finished_run(tmp_path / "run", str(data / "patch.json"), VISITS)
    assert "rename the annotation file" in refusal(run, OutputError)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_full_disk_leaves_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    real, opened = Path.open, list[Path]()

    def full(path: Path, mode: str = "r", *others: Any, **named: Any) -> Any:
        if "w" in mode or "x" in mode:
            opened.append(path)
            if len(opened) == failing:  # the dataset, the one it is compared with, the list
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, mode, *others, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        assert "the disk is full" in refusal(run, OutputError)
    assert len(opened) == failing
