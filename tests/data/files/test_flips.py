"""Single flipped bits are refused or have no effect. `fuzz/flip_bits.py` tries many more."""

import runpy
from typing import Any

import pytest

from tests import ROOT

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "fuzz")
    FUZZ: dict[str, Any] = runpy.run_path(str(ROOT / "fuzz" / "flip_bits.py"))


@pytest.mark.parametrize("kind", FUZZ["KINDS"])
def test_a_flipped_bit_is_refused_or_changes_nothing(kind: str) -> None:
    outcomes = FUZZ["flip_file"](kind, flips=40, seed=0)
    assert len(outcomes) == 40
    wrong = [one for one in outcomes if one[1] not in ("refused", "same value")]
    assert not wrong
    messages = [message for _, outcome, message in outcomes if outcome == "refused"]
    assert [one for one in messages if ";" not in one] == []  # each says what to do
