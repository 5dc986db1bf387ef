"""Trainings by Lightning with mending; skipped where it is not installed."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import boxmend
from boxmend.cli import run
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.repair.mender import MendedAnnotations
from tests.integrations.noisy_toys import NoisyToys, draw_noisy_toys
from tests.test_python_pages import blocks, with_changes

pytest.importorskip("lightning", reason="needs boxmend[lightning]")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from boxmend.integrations.lightning import MendingCallback
    from boxmend.integrations.lightning import callbacks as mending

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other packages


class Labels(Dataset[int]):
    """The sum of the labels of the annotations of each image."""

    def __init__(self, num_images: int):
        self.num_images = num_images
        self.annotations: MendedAnnotations | None = None
        self.history: list[MendedAnnotations] = []

    def exchange(self, annotations: MendedAnnotations) -> None:
        self.annotations = annotations
        self.history.append(annotations)

    def __len__(self) -> int:
        return self.num_images

    def __getitem__(self, row: int) -> int:
        assert self.annotations is not None
        return int(self.annotations.labels[self.annotations.rows_of_image(row)].sum())


class Module(lightning.LightningModule):  # type: ignore[misc]  # untyped if not installed
    """Adds up the labels that it trains on, by epoch; one of its parts stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
        self.totals: dict[int, int] = {}
        self.fails_in_epoch = -1

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        epoch = self.trainer.current_epoch
        if epoch == self.fails_in_epoch:
            raise RuntimeError("the power is out")
        self.layers[1].eval()
        assert self.layers[0].training
        self.totals[epoch] = self.totals.get(epoch, 0) + int(batch.sum())
        loss: torch.Tensor = self.layers(batch[:, None].float()).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Training:
    """A training of a few small steps, with a perfect detector."""

    def __init__(self, toys: NoisyToys, folder: Path, out: str = "run", **options: Any):
        self.toys, self.folder = toys, folder
        self.labels, self.module = Labels(len(toys.noisy.images)), Module()
        defaults = {"warm_up": 0.2, "every": 1, "exchange": self.labels.exchange}
        self.callback = MendingCallback(
            toys.noisy, folder / out, **{**defaults, "predict": self.predict, **options}
        )

    def predict(self, trainer: Any, module: Any) -> boxmend.Predictions:
        assert not any(part.training for part in module.modules())
        assert not torch.is_grad_enabled()
        return self.toys.detect()

    def fit(
        self,
        *,
        ckpt_path: Path | None = None,
        loader: Any = None,
        every_n_train_steps: int | None = None,
        **options: Any,
    ) -> Any:
        defaults = {
            "max_epochs": 6,
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": self.folder,
        }
        checkpoints = ModelCheckpoint(
            self.folder / "checkpoints", save_last=True, every_n_train_steps=every_n_train_steps
        )
        trainer = lightning.Trainer(
            **{**defaults, **options}, callbacks=[self.callback, checkpoints]
        )
        loader = loader or DataLoader(self.labels, batch_size=8)
        trainer.fit(self.module, loader, ckpt_path=ckpt_path)
        return trainer

    @property
    def last_checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "last.ckpt"


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[NoisyToys]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield draw_noisy_toys(tmp_path)
    torch.set_num_threads(threads)


def sum_of_labels(annotations: MendedAnnotations) -> int:
    return int(annotations.labels.sum())


def test_a_mended_training_leaves_a_run(toys: NoisyToys, tmp_path: Path) -> None:
    training = Training(toys, tmp_path)
    training.fit()
    assert toys.num_calls == 6  # after epochs 1 to 5, and at the end
    assert training.callback.run is not None
    assert toys.count_wrong(toys.noisy.labels) > 20
    assert toys.count_wrong(training.callback.run.mended().labels) < 10
    assert run(["apply", str(tmp_path / "run"), "--out", str(tmp_path / "mended")]) == 0


def test_each_epoch_trains_on_the_annotations_of_its_start(toys: NoisyToys, tmp_path: Path) -> None:
    training = Training(toys, tmp_path, every=2)
    training.fit(max_epochs=7)
    history = training.labels.history
    assert toys.num_calls == 4  # at the start of epochs 1, 3 and 5, and at the end
    assert len(history) == 4  # before epochs 0, 1, 3 and 5
    sums = [sum_of_labels(annotations) for annotations in history]
    assert sums[0] == toys.noisy.labels.sum()
    assert sums[-1] != sums[0]
    assert list(training.module.totals.values()) == [sums[k] for k in (0, 1, 1, 2, 2, 3, 3)]


@pytest.mark.parametrize("is_persistent", [False, True])
def test_worker_processes_get_the_mended_annotations(
    toys: NoisyToys, tmp_path: Path, is_persistent: bool
) -> None:
    training = Training(toys, tmp_path, every=2)
    loader = DataLoader(
        training.labels, batch_size=8, num_workers=1, persistent_workers=is_persistent
    )
    training.fit(loader=loader, max_epochs=7)
    sums = [sum_of_labels(annotations) for annotations in training.labels.history]
    assert sums[-1] != sums[0]
    assert list(training.module.totals.values()) == [sums[k] for k in (0, 1, 1, 2, 2, 3, 3)]


def test_a_prediction_leaves_the_mode_of_each_part_as_it_was(
    toys: NoisyToys, tmp_path: Path
) -> None:
    training = Training(toys, tmp_path)
    training.module.layers[1].eval()
    training.fit()  # training_step checks that the other part is in training mode
    assert not training.module.layers[1].training


def test_a_resumed_training_equals_an_uninterrupted_one(toys: NoisyToys, tmp_path: Path) -> None:
    whole = Training(toys, tmp_path / "a")
    whole.fit()
    broken = Training(toys, tmp_path / "b")
    broken.module.fails_in_epoch = 4
    with pytest.raises(RuntimeError, match="the power is out"):
        broken.fit()
    assert broken.callback.mender is None
    resumed = Training(toys, tmp_path / "b")
    resumed.fit(ckpt_path=broken.last_checkpoint)
    assert sorted(resumed.module.totals) == [4, 5]
    assert {**broken.module.totals, **resumed.module.totals} == whole.module.totals
    assert whole.callback.run is not None
    assert resumed.callback.run is not None
    first, second = whole.callback.run.ledger, resumed.callback.run.ledger
    assert first.to_arrow().equals(second.to_arrow())


def test_workers_of_the_first_resumed_epoch_have_the_annotations_of_the_checkpoint(
    toys: NoisyToys, tmp_path: Path
) -> None:
    broken = Training(toys, tmp_path)
    broken.module.fails_in_epoch = 4
    with pytest.raises(RuntimeError, match="the power is out"):
        broken.fit()
    resumed = Training(toys, tmp_path)
    loader = DataLoader(resumed.labels, batch_size=8, num_workers=1, persistent_workers=True)
    resumed.fit(ckpt_path=broken.last_checkpoint, loader=loader)
    sums = [sum_of_labels(annotations) for annotations in resumed.labels.history]
    assert len(sums) == 3  # from the checkpoint, and at the start of epochs 4 and 5
    assert resumed.module.totals == {4: sums[0], 5: sums[2]}
    assert sums[0] == broken.module.totals[3]


def test_a_training_resumed_within_an_epoch_has_the_same_updates(
    toys: NoisyToys, tmp_path: Path
) -> None:
    broken = Training(toys, tmp_path)
    broken.module.fails_in_epoch = 3
    with pytest.raises(RuntimeError, match="the power is out"):
        broken.fit(every_n_train_steps=12)  # the checkpoint is in epoch 2, of 5 steps each
    assert toys.num_calls == 3
    resumed = Training(toys, tmp_path)
    resumed.fit(ckpt_path=broken.last_checkpoint)
    assert sum_of_labels(resumed.labels.history[0]) == broken.module.totals[2]
    assert resumed.callback.mender is not None
    assert resumed.callback.mender.num_updates == 6
    assert toys.num_calls == 3 + 4  # after epochs 3 to 6


def test_a_resumed_training_without_a_state_is_an_error(toys: NoisyToys, tmp_path: Path) -> None:
    plain = Training(toys, tmp_path)
    plain.labels.exchange(boxmend.Mender(toys.noisy, out=tmp_path / "x").annotations())
    plain.callback = lightning.Callback()
    plain.fit(max_epochs=1)
    training = Training(toys, tmp_path)
    with pytest.raises(DataError, match=r"last\.ckpt has no state of a Mender, so its training"):
        training.fit(ckpt_path=plain.last_checkpoint)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_after_the_training_has_the_state(toys: NoisyToys, tmp_path: Path) -> None:
    training = Training(toys, tmp_path)
    trainer = training.fit()
    trainer.save_checkpoint(tmp_path / "final.ckpt")
    callbacks = torch.load(tmp_path / "final.ckpt", weights_only=True)["callbacks"]
    assert callbacks["MendingCallback"]["mender"].dtype == torch.uint8


def test_a_failed_update_is_logged_and_the_training_goes_on(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(trainer: Any, module: Any) -> boxmend.Predictions:
        return boxmend.Predictions(["no such image"], [[0, 0, 9, 9]], [0], [0.5])

    training = Training(toys, tmp_path, predict=fail)
    trainer = training.fit()
    assert (trainer.current_epoch, training.callback.run) == (6, None)
    assert "epoch 2: no update, and the training continues" in caplog.text
    assert "no such image" in caplog.text
    assert "no update succeeded, so" in caplog.text


def test_each_update_is_a_line_in_the_log(
    toys: NoisyToys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Training(toys, tmp_path).fit()
    lines = [record.message for record in caplog.records if "boxmend" in record.message]
    assert lines[0].startswith("boxmend: epoch 1: still in warm-up (")
    assert " labels changed, " in lines[3]
    assert "run has the mended annotations: boxmend report " in lines[-1]


def test_trainings_that_cannot_be_mended_are_refused(toys: NoisyToys, tmp_path: Path) -> None:
    training = Training(toys, tmp_path)
    with pytest.raises(UsageError, match="the number of epochs is unknown"):
        training.fit(max_epochs=-1, max_steps=2)
    with pytest.raises(UsageError, match="the strategy is SimpleNamespace; boxmend supports"):
        mending._ensure_supported(SimpleNamespace(max_epochs=3, strategy=SimpleNamespace()))
    with pytest.raises(UsageError, match="every is 0"):
        Training(toys, tmp_path, every=0)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match="run"):
        training.fit()
    assert training.module.totals == {}


TWO_PROCESSES = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.integrations import test_lightning as t
import boxmend

folder = Path({folder!r})
toys = t.NoisyToys(boxmend.load(folder / "noisy"), boxmend.load(folder / "clean:train"))
training = t.Training(toys, folder)
trainer = training.fit(devices=2, strategy="ddp")
sums = [t.sum_of_labels(annotations) for annotations in training.labels.history]
shapes = [annotations.soft_labels.shape for annotations in training.labels.history]
path = folder / f"rank{{trainer.global_rank}}.txt"
path.write_text(f"{{sums}} {{shapes}} {{toys.num_calls}} {{training.callback.run is not None}}")
"""


def test_two_processes_train_on_the_annotations_of_the_first(
    toys: NoisyToys, tmp_path: Path
) -> None:
    root = str(Path(__file__).parents[2])
    script = tmp_path / "train.py"
    script.write_text(TWO_PROCESSES.format(root=root, folder=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = ((tmp_path / f"rank{rank}.txt").read_text() for rank in (0, 1))
    assert first.endswith(" 6 True")
    assert second == first.replace(" 6 True", " 0 False")
    sums = first[1 : first.index("]")].split(", ")
    assert sums[0] == str(toys.noisy.labels.sum())
    assert sums[-1] != sums[0]


def test_the_example_of_the_page_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchvision.models import detection

    from tests.repair.mender.tiny_fcos import make_tiny_fcos

    def small_fcos(weights_backbone: str, num_classes: int, score_thresh: float) -> Any:
        assert weights_backbone == "DEFAULT"
        return make_tiny_fcos(num_classes, 96, score_thresh=score_thresh)

    monkeypatch.chdir(tmp_path)
    boxmend.synthesize("toys", images=20)
    monkeypatch.setattr(detection, "fcos_resnet50_fpn", small_fcos)
    names: dict[str, Any] = {}
    code = with_changes(
        blocks("adapters.md")[0],
        {"max_epochs=12": "max_epochs=3, accelerator='cpu', logger=False"},
    )
    exec(code, names)
    assert names["mending"].run.is_finished
    assert names["mending"].mender.num_updates == 2  # after epoch 1, and at the end
    assert np.isfinite(names["pictures"].annotations.boxes).all()
