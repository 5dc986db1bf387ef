"""Time the refinement of a batch against the literal Algorithm 1, on the CPU.

The batch has 16 images with 10 objects and 1,000 proposals each. Both versions score boxes by the
same trivial detector, which costs next to nothing: the literal loop one box at a time in plain
Python, the other all boxes at once as tensors. The benchmark stops unless both return the same
boxes, labels and verdicts. They take turns; the result is the ratio of the medians.

    python benchmarks/bench_refinement.py [--rounds N] [--threads N]
"""

import argparse
import importlib.util
import math
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boxmend.methods.equations import (
    VARIANTS,
    Annotations,
    Constants,
    Judgement,
    PaddedProposals,
    RefinedBatch,
    refine_as_published,
)

IMAGES, OBJECTS, PROPOSALS, LABELS = 16, 10, 1000, 20
HEIGHT, WIDTH = 240.0, 320.0
QUEUE = 128
NEAR = 20  # proposals around each object; the others lie anywhere
ORACLE = Path(__file__).parents[1] / "tests/methods/equations/algorithm1.py"
CALLS_A_ROUND = 20  # of the fast version, because one call is too short to time
MIN_SPEEDUP = 20


def oracle() -> ModuleType:
    """Import the literal Algorithm 1 of the tests, which is in no package."""
    spec = importlib.util.spec_from_file_location("literal_algorithm1", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Heads:
    """A trivial detector: class scores from area and position, regressions by a shift."""

    def __init__(self, rng: np.random.Generator):
        self.weights = torch.from_numpy(rng.normal(0, 0.02, (1 + LABELS, 4))).float()
        self.shifts = torch.from_numpy(rng.uniform(-4, 4, (LABELS, 4))).float()
        self._weights, self._shifts = self.weights.tolist(), self.shifts.tolist()

    def of_batch(self, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Score boxes [B, K, 4]."""
        logits = boxes @ self.weights.T  # [B, K, 1 + C]
        return logits.softmax(-1), boxes[:, :, None] + self.shifts

    def of_one(self, box: list[float]) -> tuple[list[float], list[list[float]]]:
        """Score a single box."""
        powers = [
            math.exp(sum(w * x for w, x in zip(row, box, strict=True))) for row in self._weights
        ]
        total = sum(powers)
        regressed = [[x + s for x, s in zip(box, row, strict=True)] for row in self._shifts]
        return [power / total for power in powers], regressed


def random_batch(rng: np.random.Generator) -> tuple[Annotations, PaddedProposals]:
    """Return a batch of random boxes, with proposals that scatter around each of them."""
    objects = _boxes(rng, OBJECTS)
    near = np.repeat(objects, NEAR, axis=1)
    near = near + rng.normal(0, 3, near.shape)
    near[..., 2:] = np.maximum(near[..., 2:], near[..., :2] + 2)
    anywhere = _boxes(rng, PROPOSALS - OBJECTS * NEAR)
    proposals = np.concatenate([near, anywhere], axis=1)
    objectness = rng.random((IMAGES, PROPOSALS))
    objectness[:, : OBJECTS * NEAR] += 0.5  # a trained detector finds the objects
    labels = rng.integers(0, LABELS, (IMAGES, OBJECTS))
    return (
        Annotations(
            torch.from_numpy(objects).float(),
            torch.from_numpy(labels),
            torch.ones(IMAGES, OBJECTS, dtype=torch.bool),
        ),
        PaddedProposals(
            torch.from_numpy(proposals).float(),
            torch.from_numpy(objectness).float(),
            torch.ones(IMAGES, PROPOSALS, dtype=torch.bool),
        ),
    )


def _boxes(rng: np.random.Generator, number: int) -> Any:
    size = np.array([WIDTH, HEIGHT])
    sides = rng.uniform(0.1, 0.4, (IMAGES, number, 2)) * size
    corners = rng.uniform(0, 1, (IMAGES, number, 2)) * (size - sides)
    return np.concatenate([corners, corners + sides], axis=-1)


def ensure_same(fast: RefinedBatch, literal: list[list[Any]]) -> None:
    """Stop if the two versions differ, or if too few verdicts of a kind occur."""
    boxes = torch.tensor([[one.box for one in image] for image in literal], dtype=torch.float64)
    labels = torch.tensor([[one.label for one in image] for image in literal])
    verdicts = torch.tensor(
        [[Judgement[one.verdict.upper()] for one in image] for image in literal]
    )
    torch.testing.assert_close(fast.boxes.double(), boxes, atol=1e-3, rtol=0)
    assert torch.equal(fast.labels, labels)
    assert torch.equal(fast.verdict.long(), verdicts.long())
    counts = [one.num_candidates for image in literal for one in image]
    shares = [(verdicts == one).double().mean().item() for one in Judgement if one >= 0]
    print(
        f"{statistics.mean(counts):.1f} candidates an object; verdicts "
        + ", ".join(f"{share:.0%}" for share in shares),
        file=sys.stderr,
    )


def main() -> None:
    """Parse the command line of the benchmark, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="as plain Python has")
    options: Any = parser.parse_args()
    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    heads, literally = Heads(rng), oracle()
    annotations, proposals = random_batch(rng)
    sizes = torch.tensor([[HEIGHT, WIDTH]] * IMAGES)
    queue = torch.from_numpy(rng.exponential(2, QUEUE)).float()
    constants = Constants(steps=VARIANTS["mend-paper"])
    images = [
        literally.Image(*rest, HEIGHT, WIDTH, heads.of_one)
        for rest in zip(
            *(annotations.boxes.tolist(), annotations.labels.tolist()),
            *(proposals.boxes.tolist(), proposals.objectness.tolist()),
            strict=True,
        )
    ]
    wanted = literally.Options(alpha=constants.alpha, acceptance=constants.acceptance)

    def fast() -> RefinedBatch:
        return refine_as_published(annotations, proposals, sizes, heads.of_batch, queue, constants)[
            0
        ]

    ensure_same(fast(), literally.run(images, queue.tolist(), wanted, by_object=False)[0])
    took: dict[str, list[float]] = {"literal": [], "boxmend": []}
    for _ in range(options.rounds):
        started = time.perf_counter()
        literally.run(images, queue.tolist(), wanted, by_object=False)
        took["literal"].append(time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(CALLS_A_ROUND):
            fast()
        took["boxmend"].append((time.perf_counter() - started) / CALLS_A_ROUND)
    medians = {name: 1e3 * statistics.median(times) for name, times in took.items()}
    print(f"| {IMAGES} images, {OBJECTS} objects, {PROPOSALS} proposals | ms a batch |\n|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} |")
    print(f"| literal / boxmend, target at least {MIN_SPEEDUP} | ", end="")
    print(f"{medians['literal'] / medians['boxmend']:.0f} |")


if __name__ == "__main__":
    main()
