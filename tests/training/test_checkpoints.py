"""The file of a checkpoint: it is restored exactly, and damage is reported."""

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from boxmend.errors import DataError
from boxmend.training import checkpoint

CPU = torch.device("cpu")


def state_of(network: nn.Module) -> dict[str, Any]:
    weights = network.state_dict()
    state: dict[str, Any] = {"step": 7, "epochs_done": 1, "best": None, "network": weights}
    state |= {"average": weights, "optimizer": {}, "method": {}, "ledger": {"num_rows": 3}}
    return state | {"format": checkpoint.FORMAT_VERSION}


def test_a_checkpoint_exists_only_between_saving_and_removing(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    assert checkpoint.load(tmp_path, CPU, network, ()) is None
    checkpoint.save(tmp_path, state_of(network))
    state = checkpoint.load(tmp_path, CPU, nn.Linear(2, 3), ())
    assert state is not None
    assert (state["step"], state["ledger"]) == (7, {"num_rows": 3})
    assert state["network"]["weight"].equal(network.weight)
    checkpoint.remove(tmp_path)
    checkpoint.remove(tmp_path)  # twice does no harm
    assert checkpoint.load(tmp_path, CPU, network, ()) is None
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_format_1_is_read_with_the_present_names(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    state = state_of(network)
    state["passes"] = state.pop("epochs_done")
    del state["format"]
    checkpoint.save(tmp_path, state)
    loaded = checkpoint.load(tmp_path, CPU, network, ())
    assert loaded is not None
    assert loaded["epochs_done"] == 1
    assert "passes" not in loaded


def test_a_checkpoint_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network) | {"format": checkpoint.FORMAT_VERSION + 1})
    with pytest.raises(DataError, match="its format is 3, and this version of boxmend reads 2"):
        checkpoint.load(tmp_path, CPU, network, ())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(2, 4), r"weight of its network is \(3, 2\) instead of \(4, 2\)"),
        (nn.Linear(2, 3, bias=False), "its network has the unknown bias"),
        (nn.Sequential(nn.Linear(2, 3)), r"0\.weight of its network is None instead of"),
    ],
)
def test_another_network_is_refused_with_what_differs(
    other: nn.Module, message: str, tmp_path: Path
) -> None:
    checkpoint.save(tmp_path, state_of(nn.Linear(2, 3)))
    with pytest.raises(DataError, match=message):
        checkpoint.load(tmp_path, CPU, other, ())


@pytest.mark.parametrize(
    ("average", "message"),
    [
        (nn.Linear(2, 4).state_dict(), r"weight of its average is \(4, 2\) instead of \(3, 2\)"),
        ({"weight": torch.zeros(3, 2)}, r"bias of its average is None instead of \(3,\)"),
        (nn.Sequential(nn.Linear(2, 3)).state_dict(), "of its average is None instead of"),
        ([torch.zeros(3, 2)], "its average is of type list"),
    ],
)
def test_the_average_of_another_network_is_refused_with_what_differs(
    average: Any, message: str, tmp_path: Path
) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network) | {"average": average})
    with pytest.raises(DataError, match=message):
        checkpoint.load(tmp_path, CPU, network, ())


@pytest.mark.parametrize("part", checkpoint.PARTS)
def test_a_part_that_is_missing_is_named(part: str, tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    state = {name: value for name, value in state_of(network).items() if name != part}
    checkpoint.save(tmp_path, state)
    with pytest.raises(DataError, match=f"it has no {part};"):
        checkpoint.load(tmp_path, CPU, network, ())


def test_what_the_method_remembers_has_to_be_there(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network) | {"method": {"queue": 1, "old": 2}})
    assert checkpoint.load(tmp_path, CPU, network, ["queue"]) is not None
    with pytest.raises(DataError, match=r"its method has no memory; another version"):
        checkpoint.load(tmp_path, CPU, network, ["queue", "memory"])


def test_any_damage_is_a_data_error_or_harmless(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network))
    path = tmp_path / checkpoint.FILE
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    num_refused = 0
    for attempt in range(300):
        spoilt = bytearray(whole[: None if attempt % 3 else int(rng.integers(len(whole)))])
        for place in rng.integers(0, max(len(spoilt), 1), 4).tolist():
            spoilt[place : place + 1] = rng.bytes(1)
        path.write_bytes(spoilt)
        with suppress(DataError):
            state = checkpoint.load(tmp_path, CPU, network, ())
            assert state is not None
            assert state["network"].keys() == {"weight", "bias"}
            continue
        num_refused += 1
    assert num_refused > 100  # the files that were cut short, at the least


def test_torch_alone_loads_a_checkpoint(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network))
    state = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    assert state["network"]["weight"].equal(network.weight)


def test_a_checkpoint_of_an_earlier_version_is_read_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = nn.Linear(2, 3)
    torch.save(state_of(network), tmp_path / checkpoint.FILE)
    state = checkpoint.load(tmp_path, CPU, network, ())
    assert state is not None
    assert state["network"]["weight"].equal(network.weight)
    assert ["has no digest" in record.getMessage() for record in caplog.records] == [True]


def test_another_weight_is_noticed(tmp_path: Path) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network))
    path, value = tmp_path / checkpoint.FILE, network.weight.detach().numpy().tobytes()[:4]
    content = path.read_bytes()
    assert value in content
    path.write_bytes(content.replace(value, bytes([value[0] ^ 1]) + value[1:]))
    with pytest.raises(DataError, match=r"checkpoint\.pt: is damaged.*restore the right file"):
        checkpoint.load(tmp_path, CPU, network, ())


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_checkpoint_that_unpacks_to_more_than_its_size_is_not_loaded(
    method: int, tmp_path: Path
) -> None:
    network = nn.Linear(300, 300)
    nn.init.zeros_(network.weight)
    torch.save(state_of(network), tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / checkpoint.FILE, "w", method) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(DataError, match=r"checkpoint\.pt: .* unpack to .* not compressed"):
        checkpoint.load(tmp_path, CPU, network, ())


def test_a_checkpoint_above_the_limit_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = nn.Linear(2, 3)
    checkpoint.save(tmp_path, state_of(network))
    monkeypatch.setenv("BOXMEND_MAX_CHECKPOINT_BYTES", "1000")
    with pytest.raises(DataError, match=r"checkpoint\.pt: .*BOXMEND_MAX_CHECKPOINT_BYTES"):
        checkpoint.load(tmp_path, CPU, network, ())
