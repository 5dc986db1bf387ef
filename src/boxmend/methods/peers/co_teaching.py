"""Co-teaching: two networks, each of which selects annotations of small loss for the other.

A re-implementation for Faster R-CNN of Bo Han, Quanming Yao, Xingrui Yu, Gang Niu, Miao Xu, Weihua
Hu, Ivor Tsang and Masashi Sugiyama, *Co-teaching: Robust training of deep neural networks with
extremely noisy labels* (NeurIPS 2018), which classifies images. A detector requires some changes;
docs/methods/co-teaching.md lists them:

* Annotations, not images, are kept or dropped, by the loss of their RoIs.
* A batch has too few annotations to rank, so a loss is compared with recent losses of its network.
* A dropped annotation does not become background: the second stage ignores its RoIs. The first
  stage, which is class-agnostic, still trains on it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from boxmend.detector import Detector, RoiOutput, RoiSample, Targets
from boxmend.detector.losses import SMOOTH_L1_BETA
from boxmend.errors import UsageError
from boxmend.methods import equations, steps
from boxmend.methods.noise_estimator import EstimatingMethod, NoiseEstimator
from boxmend.methods.outcomes import merge_outcome, neutralise_padding, unchanged_outcome
from boxmend.methods.protocol import (
    SINGLE_PROCESS,
    BatchAnnotations,
    Exchange,
    Losses,
    Outcome,
    StepContext,
    TrainingProgress,
)
from boxmend.methods.rates import Rates, check_rates
from boxmend.runs.judgement import Judgement
from boxmend.runs.settings import CoTeachingSettings

NETWORKS = ("a", "b")
SUFFIXES = ("", "_b")  # of the names of their losses


@dataclass(frozen=True)
class CoTeachingConstants:
    """The default of tau, and a limit of the ranks."""

    default_forget_rate: float = 0.2  # if the label noise is unknown, or 0 while boxes are noisy
    min_median_loss: float = 1e-6  # losses are divided by a median, which has to be positive


CO_TEACHING = CoTeachingConstants()


def needs_estimates(settings: CoTeachingSettings, rates: Rates) -> bool:
    """Return whether tau follows an estimate: neither tau nor the label noise is known."""
    return settings.forget_rate is None and rates.label is None


def forget_rate(setting: float | None, rates: Rates) -> float:
    """Return tau: the setting, else the label noise, else 0.2; 0 if there is no noise at all."""
    if setting is not None:
        return setting
    if rates.label:
        return rates.label
    return 0.0 if rates == Rates(0, 0) else CO_TEACHING.default_forget_rate


def forget_share(epoch: int, num_epochs: int, tau: float, settings: CoTeachingSettings) -> float:
    """Return the share 1 - R(t) to drop in epoch t, counted from 0: tau min(t / T_k, 1)^c.

    T_k is a share of all epochs. As in the source, the first epoch drops nothing.
    """
    ramp = settings.ramp_share * num_epochs
    done = 1.0 if epoch >= ramp else epoch / ramp
    return float(tau * done**settings.exponent)


class ObjectLosses(NamedTuple):
    """The losses of annotations by their positive RoIs; all [B, A]."""

    classes: Tensor  # mean cross-entropy
    boxes: Tensor  # mean regression loss
    is_measured: Tensor  # false where the annotation has no positive RoI


def mark_own_rois(rois: RoiSample, num_annotations: int) -> Tensor:
    """Mark the positive RoIs of each annotation, [B, A, S]."""
    rows = torch.arange(num_annotations, device=rois.matched.device)[:, None]  # [A, 1]
    return rois.is_positive[:, None] & (rois.matched[:, None] == rows)


def object_losses(output: RoiOutput, rois: RoiSample, is_own: Tensor, kind: str) -> ObjectLosses:
    """Average the losses of the RoIs of each annotation; 0 for annotations without one.

    Takes the outputs for the sampled RoIs, the mask [B, A, S] of `mark_own_rois`, and the kind of
    box loss.
    """
    columns = torch.where(rois.is_positive, rois.labels + 1, 0)[..., None]  # [B, S, 1]
    entropy = -output.logits.float().log_softmax(-1).take_along_dim(columns, dim=-1)[..., 0]
    deltas = output.deltas.float().take_along_dim(columns[..., None], dim=2)[:, :, 0]  # [B, S, 4]
    beta = SMOOTH_L1_BETA if kind == "smooth_l1" else 0.0  # without a quadratic part it is L1
    off = F.smooth_l1_loss(deltas, rois.deltas.float(), beta=beta, reduction="none").sum(-1)
    number = is_own.sum(-1)  # [B, A]

    def mean(tensor: Tensor) -> Tensor:
        return torch.where(is_own, tensor[:, None], 0).sum(-1) / number.clamp(min=1)

    return ObjectLosses(mean(entropy), mean(off), number > 0)


def masked_median(values: Tensor, is_value: Tensor) -> Tensor:
    """Return the median of the marked values, a scalar; 1 if none is marked.

    Takes two tensors of one shape. For an even number it is the mean of the middle two values.
    """
    number = is_value.sum()
    ranked = F.pad(torch.where(is_value, values, torch.inf).reshape(-1), (0, 1), value=torch.inf)
    ranked = ranked.sort().values
    middle = torch.stack([(number - 1).clamp(min=0) // 2, number // 2])
    return torch.where(number > 0, ranked.gather(0, middle).mean(), 1)


def relative_losses(measured: ObjectLosses, batch: ObjectLosses) -> Tensor:
    """Add both losses of annotations [...], each divided by its median in the whole batch."""
    total = torch.zeros_like(measured.classes)
    for name in ("classes", "boxes"):
        median = masked_median(getattr(batch, name), batch.is_measured)
        total = total + getattr(measured, name) / median.clamp(min=CO_TEACHING.min_median_loss)
    return total


def is_dropped(
    losses: Tensor, limit: Tensor, is_box: Tensor, is_measured: Tensor, is_measured_by_peer: Tensor
) -> Tensor:
    """Mark the annotations whose loss exceeds the limit; all arguments but the limit are [B, A].

    An annotation without a positive RoI is dropped if the peer network has none either, and kept
    otherwise.
    """
    unmeasured = torch.where(is_measured_by_peer, -torch.inf, torch.inf)
    return equations.judge(torch.where(is_measured, losses, unmeasured), limit, is_box)


def remove_dropped(rois: RoiSample, is_own: Tensor, is_out: Tensor) -> RoiSample:
    """Remove the RoIs of dropped annotations [B, A] from the sample."""
    is_left = ~(is_own & is_out[..., None]).any(1)  # [B, S]
    return rois._replace(
        is_sampled=rois.is_sampled & is_left, is_positive=rois.is_positive & is_left
    )


class View(NamedTuple):
    """The output of one network for a batch."""

    detector: Detector
    first_stage: steps.FirstStage
    rpn: Losses
    rois: RoiSample
    is_own: Tensor  # [B, A, S]
    output: RoiOutput


class NetworkJudgement(NamedTuple):
    """The judgement of annotations by one network; all [B, A] but the limit."""

    losses: Tensor
    limit: Tensor
    is_measured: Tensor
    is_dropped: Tensor  # for the peer network


class CoTeaching(EstimatingMethod):
    """Two networks that select annotations for each other; the state is their recent losses.

    Network A is the detector, B its twin. The ledger records B's judgement, because it decides what
    A trains on, and A makes the predictions. Loss and threshold are those of B; the judgement is
    KEPT or DISCARDED, or UNJUDGED in epochs that drop nothing and where B drew no positive RoI.
    """

    has_warm_up = False  # the ramp of tau replaces it

    def __init__(
        self,
        settings: CoTeachingSettings,
        rates: Rates = Rates(),  # noqa: B008  # a tuple
        device: torch.device | str = "cpu",
        estimator: NoiseEstimator | None = None,
        exchange: Exchange = SINGLE_PROCESS,
    ):
        """Keep the estimator, which is needed if tau follows an estimate of the noise."""
        super().__init__(estimator, exchange)
        self.settings = settings
        self.rates = check_rates(rates)
        self.tau = forget_rate(settings.forget_rate, rates)
        self.queues = [equations.empty_queue(settings.queue_length, device) for _ in NETWORKS]

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of both networks, each on the annotations that the other keeps."""
        annotations = neutralise_padding(context.annotations)
        everything = unchanged_outcome(annotations).rpn
        views = [
            _view(context, network, everything)
            for network in (context.detector, context.detector.twin)
        ]
        share = forget_share(
            context.progress.epoch, context.progress.num_epochs, self.tau, self.settings
        )
        with torch.no_grad():
            if self.estimator is not None:
                scorer = context.scorer_on(steps.detach_features(views[0].first_stage.features))
                self.observe(annotations, views[0].first_stage.proposals, scorer)
            judgements = self._judge_annotations(annotations, views, share)
            outcome = _outcome(annotations, judgements, is_judging=share > 0)
        losses: Losses = {}
        for suffix, view, peer in zip(SUFFIXES, views, reversed(judgements), strict=True):
            rois = remove_dropped(view.rois, view.is_own, peer.is_dropped)
            measured = view.detector.roi_losses(view.output, rois, everything)
            second = {"roi_classes": measured.classification, "roi_boxes": measured.boxes}
            losses |= {f"{name}{suffix}": loss for name, loss in (view.rpn | second).items()}
        return outcome, losses

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return None: the share to drop changes only between epochs."""
        return None

    def models(self, detector: Detector) -> Mapping[str, Detector]:
        """Return network B, which is saved and evaluated beside A."""
        return {"b": detector.twin}

    def _own_state(self) -> dict[str, Any]:
        """Return the queues of both networks."""
        queues = zip(NETWORKS, self.queues, strict=True)
        return {f"queue_{name}": queue.clone() for name, queue in queues}

    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Load queues of the same length."""
        for name, queue in zip(NETWORKS, self.queues, strict=True):
            saved = state[f"queue_{name}"]
            if saved.shape != queue.shape:
                was, now = len(saved), len(queue)
                raise UsageError(
                    f"the saved state has queues of {was} losses, but co_teaching.queue_length is "
                    f"{now}; use the settings of the saved state"
                )
            queue.copy_(saved)

    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Set tau by the known or estimated rates."""
        self.tau = forget_rate(self.settings.forget_rate, estimator.known_rates())

    def _judge_annotations(
        self, annotations: BatchAnnotations, views: Sequence[View], share: float
    ) -> list[NetworkJudgement]:
        """Judge by the queues before this batch, then push the losses of the batch."""
        kind = views[0].detector.numbers.box_loss
        measured = [object_losses(view.output, view.rois, view.is_own, kind) for view in views]
        size = len(ObjectLosses._fields)
        gathered = self.exchange.all_gather(*(column for losses in measured for column in losses))
        batches = [ObjectLosses(*gathered[:size]), ObjectLosses(*gathered[size:])]
        judgements = []
        for mine, peer, batch, queue in zip(
            measured, reversed(measured), batches, self.queues, strict=True
        ):
            losses = relative_losses(mine, batch)
            limit = equations.threshold(queue, 1 - share)
            if share == 0:  # the highest recent loss must not be a limit
                limit = torch.full_like(limit, torch.inf)
            is_out = is_dropped(
                losses, limit, annotations.is_box, mine.is_measured, peer.is_measured
            )
            judgements.append(NetworkJudgement(losses, limit, mine.is_measured, is_out))
            pushed = relative_losses(batch, batch)
            queue.copy_(equations.push(queue, pushed, batch.is_measured))
        return judgements


def _view(context: StepContext, detector: Detector, targets: Targets) -> View:
    """Run one network on the batch, with its own anchors and RoIs."""
    first_stage = steps.run_first_stage(context, detector)
    rpn = steps.rpn_losses(context, first_stage.raw, targets, detector)
    rois = steps.draw_rois(context, first_stage.proposals, targets, detector)
    output = detector.roi_outputs(first_stage.features, rois.boxes)
    return View(
        detector, first_stage, rpn, rois, mark_own_rois(rois, targets.boxes.shape[1]), output
    )


def _outcome(
    annotations: BatchAnnotations, judgements: Sequence[NetworkJudgement], *, is_judging: bool
) -> Outcome:
    """Return the outcome by B's judgement, with the shares that both networks drop as metrics."""
    _, by_b = judgements
    is_judged = annotations.is_box & by_b.is_measured & is_judging
    verdict = torch.where(by_b.is_dropped, int(Judgement.DISCARDED), int(Judgement.KEPT))
    not_measured = torch.full_like(by_b.losses, torch.nan)
    refined = equations.RefinedBatch(
        boxes=annotations.boxes,
        labels=annotations.labels,
        verdict=torch.where(is_judged, verdict, int(Judgement.UNJUDGED)),
        loss=torch.where(by_b.is_measured, by_b.losses, not_measured),
        threshold=torch.where(is_judged, by_b.limit, not_measured),
        confidence=not_measured,
        num_candidates=torch.zeros_like(annotations.labels),
        matched=annotations.boxes,
    )
    is_kept = annotations.is_box & ~by_b.is_dropped
    outcome = merge_outcome(
        annotations, refined, equations.Roles(annotations.is_box, is_kept, by_b.is_dropped)
    )
    number = annotations.is_box.sum().clamp(min=1)
    for suffix, peer in zip(SUFFIXES, reversed(judgements), strict=True):
        outcome.metrics[f"dropped{suffix}"] = (peer.is_dropped & annotations.is_box).sum() / number
        if is_judging:
            outcome.metrics[f"threshold{suffix}"] = peer.limit
    return outcome
