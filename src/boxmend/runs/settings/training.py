"""Settings of a training."""

from dataclasses import dataclass, field
from typing import Literal

from boxmend.data.describing import describe
from boxmend.errors import UsageError
from boxmend.runs.settings.mend import MendSettings
from boxmend.runs.settings.peers import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    NoteRcnnSettings,
    OaMilSettings,
)
from boxmend.runs.settings.published import PublishedSettings
from boxmend.runs.settings.ranges import check_amount, check_choice, check_count, check_share

LEARNING_RATE_PER_IMAGE = 0.00125  # mmdetection's linear rule: 0.02 for a batch of 16
MAX_PROBE_SHARE = 0.2  # more errors would change what they measure
PUBLISHED = "published"
METHOD_SECTIONS: dict[str, str] = {
    "baseline": PUBLISHED,
    "br": PUBLISHED,
    "ca-bbc": "ca_bbc",
    "cinj": PUBLISHED,
    "cm": PUBLISHED,
    "co-teaching": "co_teaching",
    "disco": "disco",
    "lr": PUBLISHED,
    "mend": "mend",
    "mend-paper": PUBLISHED,
    "note-rcnn": "note_rcnn",
    "oa-mil": "oa_mil",
    "pseudo": PUBLISHED,
}
"""The field of TrainSettings that holds the settings of each method."""


@dataclass(frozen=True)
class Optimisation:
    """Optimizer, learning rate and averaging of the weights."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """sgd, or adamw for small detectors without pretrained weights."""
    lr: float | None = None
    """Learning rate; by default 0.00125 times the batch size, mmdetection's linear rule."""
    momentum: float = 0.9
    """Momentum of sgd, 0 to 1, as in the paper."""
    weight_decay: float = 1e-4
    """Weight decay, from 0 on, as in the paper."""
    schedule: Literal["step", "cosine"] | None = None
    """step: a tenth of the rate from `drop_at` on; cosine: down to zero. By default step."""
    drop_at: float = 0.75
    """Share of the training after which the rate drops: 9 of 12 epochs."""
    warm_up_steps: int = 200
    """Number of steps over which the rate rises from 0.1 %; a start at full rate diverges."""
    max_norm: float | None = None
    """Maximum norm of the gradients, which are scaled down to it; 0 never scales. By default 35,
    which is seldom reached; preset paper: 0."""
    average_decay: float | None = None
    """Decay of the exponential average of the weights, which is the final model; 0 turns it off.
    By default 0.998 for mend: a trial at 40/40 without it gave 52.1 instead of 54.1 AP50. Other
    methods and preset paper: 0."""

    def __post_init__(self) -> None:
        check_choice("optimisation.optimizer", self.optimizer, ("sgd", "adamw"))
        check_choice("optimisation.schedule", self.schedule, ("step", "cosine"))
        for name in ("momentum", "drop_at", "average_decay"):
            check_share(f"optimisation.{name}", getattr(self, name))
        for name, example in (("lr", "0.02"), ("weight_decay", "0.0001"), ("max_norm", "35")):
            check_amount(f"optimisation.{name}", getattr(self, name), example)
        check_count("optimisation.warm_up_steps", self.warm_up_steps, minimum=0)


@dataclass(frozen=True, repr=False)
class TrainSettings:
    """Everything that defines a run besides its data; `resolve_settings` applies the preset."""

    __repr__ = describe

    method: str = "mend"
    """How annotations become training targets: mend, baseline (unchanged), the published mend-paper
    and its parts br, lr, cm, cinj and pseudo, or a peer: co-teaching, note-rcnn, ca-bbc, oa-mil,
    disco."""
    preset: Literal["default", "paper"] = "default"
    """paper: a literal reading of the paper with mmdetection's numbers; it turns mend into
    mend-paper. mend-paper and its parts always use it. Explicit settings override a preset."""
    label_noise: float | Literal["auto"] = "auto"
    """Share of wrong labels, 0 to 1, if known; 0 leaves labels as they are. auto: estimated once an
    epoch, with an interval."""
    box_noise: float | Literal["auto"] = "auto"
    """Error of the sides as a share of the box, 0 to 1, if known; 0 leaves boxes as they are. auto:
    estimated once an epoch, with an interval."""
    warm_up: float = 0.25
    """Share of the training before refinement begins: 3 of 12 epochs, as in the paper on VOC."""
    judging_weights: Literal["network", "heads", "average"] = "network"
    """Weights that judge annotations: network (those in training), heads (averaged heads on the
    features of the network), or average (averaged weights, at the cost of half a step)."""

    probe: float | None = None
    """Share of annotations, 0 to 0.2, that get a wrong label or a wrong box in memory only. With
    it, `boxmend audit RUN` measures how many errors it finds; try 0.05. By default none."""

    detector: str = "resnet50"
    """resnet50 (as in the paper), resnet18, mobilenet_v2 or mobilenet_v3, all with a feature
    pyramid, or tiny for small images on a CPU."""
    weights: str | None = "default"
    """default (ImageNet classification), a safetensors file, or none. Never use weights trained on
    COCO detection: they have seen clean boxes."""
    image_size: str = "600/1000"
    """Short/long side to which images are scaled, as mmdetection does for VOC, or the long side
    alone (320)."""
    proposals: int | None = None
    """Number of proposals per training image; by default that of the detector, 2000; preset paper:
    1000."""
    pre_nms: int | None = None
    """Number of anchors per level before suppression; by default that of the detector, 2000, but
    1000 for up to 500 proposals, since 2000 cost four times as much; preset paper: 2000."""
    rois: int | None = None
    """Number of RoIs sampled per image; by default that of the detector, 512."""
    box_loss: Literal["smooth_l1", "l1"] | None = None
    """Box loss of both stages; by default smooth_l1 as in torchvision; preset paper: l1 as in
    mmdetection."""
    rpn_low_quality: float | None = None
    """IoU from which an annotation's best anchors are always positive; by default 0 as in
    torchvision; preset paper: 0.3 as in mmdetection."""
    difficult: Literal["ignore", "background"] | None = None
    """How difficult objects are trained on: ignored, or as background. By default ignore; preset
    paper: background, as in mmdetection."""

    epochs: int = 12
    """Number of epochs, from 1 on; 12 as in the paper on VOC."""
    batch_size: int = 16
    """Number of images per step over all processes, from 1 on."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 if the device supports it, else float32."""
    cuda_graph: bool = True
    """Record a step as a CUDA graph once an epoch and replay it, on a GPU with one process: about
    twice as fast. Off: kernels are launched one by one, which gives clearer errors."""
    seed: int = 0
    """Seed of everything random, 0 or more."""

    keep_best: bool = False
    """Keep the weights of the epoch with the best score on --val (AP50 by area) instead of the last
    ones. Off by default: the validation data may be noisy, too."""
    checkpoint_every: int = 500
    """Number of steps between checkpoints; a crash loses at most these steps."""
    log_every: int = 50
    """Number of steps between log lines; the loop waits for the device only then."""
    strict: bool = False
    """Stop at an unreadable image instead of skipping it."""

    optimisation: Optimisation = field(default_factory=Optimisation)
    mend: MendSettings = field(default_factory=MendSettings)
    published: PublishedSettings = field(default_factory=PublishedSettings)
    co_teaching: CoTeachingSettings = field(default_factory=CoTeachingSettings)
    note_rcnn: NoteRcnnSettings = field(default_factory=NoteRcnnSettings)
    ca_bbc: CaBbcSettings = field(default_factory=CaBbcSettings)
    oa_mil: OaMilSettings = field(default_factory=OaMilSettings)
    disco: DiscoSettings = field(default_factory=DiscoSettings)

    def __post_init__(self) -> None:
        check_choice("preset", self.preset, ("default", "paper"))
        check_choice("judging_weights", self.judging_weights, ("network", "heads", "average"))
        check_choice("box_loss", self.box_loss, ("smooth_l1", "l1"))
        check_choice("difficult", self.difficult, ("ignore", "background"))
        check_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        for name in (
            *("epochs", "batch_size", "checkpoint_every", "log_every"),
            *("proposals", "pre_nms", "rois"),
        ):
            check_count(name, getattr(self, name))
        for name in ("warm_up", "rpn_low_quality"):
            check_share(name, getattr(self, name))
        if self.probe is not None and not 0 <= self.probe <= MAX_PROBE_SHARE:
            raise UsageError(
                f"probe is {self.probe!r}; expected a share from 0 to {MAX_PROBE_SHARE}, like 0.05"
            )
        for name in ("label_noise", "box_noise"):
            if getattr(self, name) != "auto":
                check_share(name, getattr(self, name))
        if not 0 <= self.seed < 2**31:  # shifted by 32 bits it must fit a signed integer
            raise UsageError(f"seed is {self.seed!r}; expected a number from 0 to {2**31 - 1}")
        parse_image_size(self.image_size)

    @property
    def learning_rate(self) -> float:
        """Return the learning rate that is set, or that of the linear rule."""
        if self.optimisation.lr is not None:
            return self.optimisation.lr
        return LEARNING_RATE_PER_IMAGE * self.batch_size


def parse_image_size(text: str) -> tuple[int | None, int]:
    """Return (600, 1000) for "600/1000", and (None, 320) for "320"."""
    parts = text.split("/")
    if len(parts) > 2 or not all(part.isdecimal() and 32 <= int(part) <= 8192 for part in parts):
        raise UsageError(
            f"image_size is {text!r}; expected SHORT/LONG like 600/1000, or 320, each from 32 to "
            "8192"
        )
    sides = [int(part) for part in parts]
    return (sides[0], sides[1]) if len(sides) == 2 else (None, sides[0])
