"""The numbers of the paper's method and its ablations."""

from dataclasses import dataclass
from typing import Literal

from boxmend.runs.settings.ranges import check_amount, check_choice, check_count, check_share


@dataclass(frozen=True)
class PublishedSettings:
    """The numbers of the paper, and what it leaves open read literally."""

    acceptance: float | None = None
    """r, 0 to 1; by default max(1 - label noise, 0.5) as published, 0.6 where it is unknown."""
    alpha: float | None = None
    """Weight of p* in Eq. 19, 0 to 1; by default the box noise within 0.2 to 0.4 as published,
    0.4 where it is unknown."""
    gamma: float = 0.1
    """Weight of the extents in Eq. 15, from 0 on (Sec. 3.2)."""
    fit_threshold: float = 0.9
    """Of Eq. 18; at 40 % box noise a third of the correct proposals passes, 0.85 admits more."""
    num_proposals: int = 100
    """P_h, from 1 on: how many of highest objectness are looked at (Sec. 3.2)."""
    num_candidates: int = 10
    """How many of those that fit are scored, from 1 on (Sec. 3.2)."""
    confidence: float = 0.5
    """Of Eq. 13, 0 to 1: a pseudo-label counts above it."""
    queue_length: int = 128
    """N, from 1 on: the threshold rests on that many recent losses (Sec. 4.2)."""
    discarded: Literal["background", "ignore", "rpn_only"] = "background"
    """What becomes of discarded annotations; background is the literal reading."""
    fallback: Literal["raw", "self"] = "raw"
    """Box without candidates: b, or its mean with its own regression; the paper is silent."""
    unreliable: Literal["discard", "keep"] = "discard"
    """A noisy label without a confident pseudo-label: discarded (Eq. 13)."""
    granularity: Literal["batch", "object"] = "batch"
    """One threshold a batch; object is the literal loop of Algorithm 1, which is slow."""
    queue_warm_up_steps: int = 200
    """Last steps of warm-up whose losses fill the queue, so that judgment is active at once."""
    record_losses: bool = False
    """Score annotations that are not judged, for the ledger's sake; one more head call a step."""

    def __post_init__(self) -> None:
        for name in ("acceptance", "alpha", "confidence"):
            check_share(f"published.{name}", getattr(self, name))
        for name, like in (("gamma", "0.1"), ("fit_threshold", "0.9")):
            check_amount(f"published.{name}", getattr(self, name), like)
        for name in ("num_proposals", "num_candidates", "queue_length"):
            check_count(f"published.{name}", getattr(self, name))
        check_count("published.queue_warm_up_steps", self.queue_warm_up_steps, least=0)
        for name, known in (
            ("discarded", ("background", "ignore", "rpn_only")),
            ("fallback", ("raw", "self")),
            ("unreliable", ("discard", "keep")),
            ("granularity", ("batch", "object")),
        ):
            check_choice(f"published.{name}", getattr(self, name), known)
