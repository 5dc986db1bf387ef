"""Settings of the paper's method and its ablations."""

from dataclasses import dataclass
from typing import Literal

from boxmend.runs.settings.ranges import (
    MAX_TENSOR_COUNT,
    check_amount,
    check_choice,
    check_count,
    check_share,
)


@dataclass(frozen=True)
class PublishedSettings:
    """The numbers of the paper, and a literal reading where it leaves a choice."""

    acceptance: float | None = None
    """r, 0 to 1; by default max(1 - label noise, 0.5) as published, 0.6 if the noise is unknown."""
    alpha: float | None = None
    """Weight of p* in Eq. 19, 0 to 1; by default the box noise, limited to 0.2 to 0.4 as published,
    and 0.4 if it is unknown."""
    gamma: float = 0.1
    """Weight of the box sizes in Eq. 15, from 0 on (Sec. 3.2)."""
    fit_threshold: float = 0.9
    """Threshold of Eq. 18; at 40 % box noise a third of the correct proposals passes, with 0.85
    more."""
    num_proposals: int = 100
    """Size of P_h, the proposals of highest objectness, from 1 on (Sec. 3.2)."""
    num_candidates: int = 10
    """Maximum number of fitting proposals that are scored, from 1 on (Sec. 3.2)."""
    confidence: float = 0.5
    """Threshold of Eq. 13, 0 to 1: a pseudo-label needs a higher probability."""
    queue_length: int = 128
    """N, from 1 on: number of recent losses that set the threshold (Sec. 4.2)."""
    discarded: Literal["background", "ignore", "rpn_only"] = "background"
    """How discarded annotations are trained on; background is the literal reading."""
    fallback: Literal["raw", "self"] = "raw"
    """Final box of an annotation without candidates: raw is b, self the mean of b and its own
    regression. The paper does not say."""
    unreliable: Literal["discard", "keep"] = "discard"
    """What happens to a noisy label without a confident pseudo-label; discard is Eq. 13."""
    granularity: Literal["batch", "object"] = "batch"
    """How often the threshold changes; object is the literal loop of Algorithm 1, which is slow."""
    judged_classes: Literal["all", "foreground"] = "all"
    """Classes of the probabilities that judge and replace labels (Eq. 11 to 13): all has background
    in the sum, foreground is the softmax over the classes of the dataset alone."""
    judged_box: Literal["matched", "proposal", "annotation"] = "matched"
    """Box whose probabilities judge and replace labels: matched is b* as in Eq. 11, proposal is p*
    of Eq. 19 (b if no proposal fits), annotation is b."""
    queue_warm_up_steps: int = 200
    """Number of steps at the end of warm-up whose losses fill the queue, from 0 on."""
    record_losses: bool = False
    """Record losses in the ledger also if labels are not judged; costs a head call per step."""

    def __post_init__(self) -> None:
        for name in ("acceptance", "alpha", "confidence"):
            check_share(f"published.{name}", getattr(self, name))
        for name, example in (("gamma", "0.1"), ("fit_threshold", "0.9")):
            check_amount(f"published.{name}", getattr(self, name), example)
        for name in ("num_proposals", "num_candidates", "queue_length"):
            check_count(f"published.{name}", getattr(self, name), maximum=MAX_TENSOR_COUNT)
        check_count("published.queue_warm_up_steps", self.queue_warm_up_steps, minimum=0)
        for name, choices in (
            ("discarded", ("background", "ignore", "rpn_only")),
            ("fallback", ("raw", "self")),
            ("unreliable", ("discard", "keep")),
            ("granularity", ("batch", "object")),
            ("judged_classes", ("all", "foreground")),
            ("judged_box", ("matched", "proposal", "annotation")),
        ):
            check_choice(f"published.{name}", getattr(self, name), choices)
