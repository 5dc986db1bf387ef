"""Entries for the tests of the ledger."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.runs.ledger import Entries, Judgement


def visits(n: int, *, epoch: int = 1, seed: int = 0, texts: bool = False) -> Entries:
    """Some entries of one epoch, different for every seed."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 10_000, n)
    ids = np.empty(n, object)
    ids[:] = [f"image-{number}:{number % 7}" for number in numbers.tolist()]
    noisy = rng.uniform(0, 500, (n, 4)).astype(np.float32)
    matched = noisy + rng.normal(0, 3, (n, 4)).astype(np.float32)
    verdicts = rng.integers(0, 4, n).astype(np.int8)
    return Entries(
        epochs=np.full(n, epoch),
        steps=np.arange(n) + 1000 * seed,
        annotation_ids=ids if texts else numbers,
        image_ids=numbers // 7,
        losses=rng.exponential(1, n).astype(np.float32),
        thresholds=np.full(n, np.inf, np.float32),
        verdicts=verdicts,
        num_candidates=rng.integers(0, 11, n),
        old_labels=rng.integers(0, 20, n),
        new_labels=rng.integers(-1, 20, n),
        confidences=rng.random(n).astype(np.float32),
        noisy_boxes=noisy,
        matched_boxes=matched,
        final_boxes=(noisy + matched) * np.float32(0.5),
        is_kept=verdicts != Judgement.DISCARDED,
    )


def pieces(entries: Entries, sizes: list[int]) -> Iterator[Entries]:
    """The entries in batches of these sizes, and the rest."""
    begin = 0
    for size in [*sizes, len(entries)]:
        columns: dict[str, Any] = {
            field.name: getattr(entries, field.name)[begin : begin + size]
            for field in fields(entries)
        }
        yield Entries(**columns)
        begin += size


def bytes_of(run_dir: Path) -> dict[str, bytes]:
    """Every file of a ledger, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted((run_dir / "ledger").iterdir())}
