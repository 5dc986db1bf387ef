"""All that a training can be told besides its data."""

from dataclasses import dataclass, field
from typing import Literal

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

RATE_OF_AN_IMAGE = 0.00125  # mmdetection's linear rule: 0.02 for a batch of 16
PUBLISHED = "published"
SECTIONS: dict[str, str] = {
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
"""The field of TrainSettings that holds the settings of a method, by the method's name."""


@dataclass(frozen=True)
class Optimisation:
    """How the weights move."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """sgd, or adamw for small detectors that start from little."""
    lr: float | None = None
    """Learning rate; by default 0.00125 times the batch size, mmdetection's linear rule."""
    momentum: float = 0.9
    """Of sgd, 0 to 1; the paper's."""
    weight_decay: float = 1e-4
    """From 0 on; the paper's."""
    schedule: Literal["step", "cosine"] | None = None
    """step: a tenth from `drop_at` on; cosine: down to zero over all steps. By default step."""
    drop_at: float = 0.75
    """Share of the training after which the rate drops: 9 of 12 passes."""
    warm_up_steps: int = 200
    """Steps over which the rate rises from a thousandth; a cold start at full rate diverges."""
    max_norm: float | None = None
    """Gradients are scaled to at most this norm; 0 leaves them alone. By default 35, which guards
    and seldom acts; preset paper: 0."""
    average_decay: float | None = None
    """Decay of the exponential average of the weights, which predicts; 0 keeps none. By default
    0.998: in a trial without it 52.1 instead of 54.1 AP50 at 40/40. Other methods and preset
    paper: 0."""

    def __post_init__(self) -> None:
        check_choice("optimisation.optimizer", self.optimizer, ("sgd", "adamw"))
        check_choice("optimisation.schedule", self.schedule, ("step", "cosine"))
        for name in ("momentum", "drop_at", "average_decay"):
            check_share(f"optimisation.{name}", getattr(self, name))
        for name, like in (("lr", "0.02"), ("weight_decay", "0.0001"), ("max_norm", "35")):
            check_amount(f"optimisation.{name}", getattr(self, name), like)
        check_count("optimisation.warm_up_steps", self.warm_up_steps, least=0)


@dataclass(frozen=True)
class TrainSettings:
    """All that defines a run, besides its data. `resolved` fills in what the preset decides."""

    method: str = "mend"
    """What turns annotations into targets: baseline (nothing does), mend, the published
    mend-paper and its parts br, lr, cm, cinj and pseudo, or a peer: co-teaching, note-rcnn,
    ca-bbc, oa-mil, disco."""
    preset: Literal["default", "paper"] = "default"
    """paper: the literal reading of the paper, on mmdetection's numbers, which makes mend
    mend-paper; mend-paper and its parts are always read so. What is set here goes before it."""
    label_noise: float | Literal["auto"] = "auto"
    """Share of wrong labels, 0 to 1, where it is known; 0 leaves labels alone. auto: estimated
    once a pass, with an interval."""
    box_noise: float | Literal["auto"] = "auto"
    """How far sides are off, in shares of the box, 0 to 1, where it is known; 0 leaves boxes
    alone. auto: estimated once a pass, with an interval."""
    warm_up: float = 0.25
    """Share of the training before refinement begins: 3 of 12 passes, as in the paper on VOC."""
    judging_weights: Literal["network", "heads", "average"] = "network"
    """Whose opinion of annotations counts: that of the weights in training, of averaged heads on
    their features, or of the average throughout, which costs half a step more."""

    detector: str = "resnet50"
    """resnet50 as in the paper, resnet18, mobilenet_v2 or mobilenet_v3, all with a feature
    pyramid, or tiny for small images on a CPU."""
    weights: str | None = "default"
    """default: ImageNet classification; a safetensors file; or none. Never COCO detections, which
    have seen clean boxes."""
    image_size: str = "600/1000"
    """Short/long side that images are scaled to, as mmdetection does for VOC, or the long side
    alone (320)."""
    proposals: int | None = None
    """Proposals of an image while training; by default the detector's own number, 2000; preset
    paper: 1000."""
    pre_nms: int | None = None
    """Anchors of each level that enter suppression; by default the detector's own number, 2000,
    but 1000 for at most 500 proposals, since 2000 cost four times as much; preset paper: 2000."""
    rois: int | None = None
    """Sampled RoIs of an image; by default the detector's own number, 512."""
    box_loss: Literal["smooth_l1", "l1"] | None = None
    """Of both stages; by default smooth_l1 as in torchvision; preset paper: l1 as in
    mmdetection."""
    rpn_low_quality: float | None = None
    """IoU from which an annotation's best anchors are positive in any case; by default 0 as in
    torchvision; preset paper: 0.3 as in mmdetection."""
    difficult: Literal["ignore", "background"] | None = None
    """Difficult objects: learn nothing around them, or take them for background. By default
    ignore; preset paper: background, which is what mmdetection makes of them."""

    epochs: int = 12
    """Passes over the data, from 1 on; 12 as in the paper on VOC."""
    batch_size: int = 16
    """Images of a step, from 1 on; where there are several processes, of all together."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 where the device has it, else float32."""
    cuda_graph: bool = True
    """Record a step as a CUDA graph once a pass and replay it, on a GPU and in one process: about
    twice as fast. Off: every kernel is launched by itself, which errors can be told from."""
    seed: int = 0
    """Of everything random; 0 or more."""

    keep_best: bool = False
    """Keep the weights of the pass that scored best on --val (AP50 by area) instead of the last.
    Off: the validation data may be noisy themselves."""
    checkpoint_every: int = 500
    """Steps between checkpoints: the most work that a kill can cost."""
    log_every: int = 50
    """Steps between lines of the log; only then does the loop wait for the device."""
    strict: bool = False
    """Stop at an unreadable image instead of leaving it out."""

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
        for name in ("label_noise", "box_noise"):
            if getattr(self, name) != "auto":
                check_share(name, getattr(self, name))
        if not 0 <= self.seed < 2**31:  # shifted by 32 bits it must remain a signed integer
            raise UsageError(f"seed is {self.seed!r}; expected a number from 0 to {2**31 - 1}")
        parsed_image_size(self.image_size)

    @property
    def learning_rate(self) -> float:
        """The rate itself, or the rule's."""
        if self.optimisation.lr is not None:
            return self.optimisation.lr
        return RATE_OF_AN_IMAGE * self.batch_size


def parsed_image_size(text: str) -> tuple[int | None, int]:
    """Short and long side of "600/1000", or (None, 320) of "320"."""
    parts = text.split("/")
    if len(parts) > 2 or not all(part.isdecimal() and 32 <= int(part) <= 8192 for part in parts):
        raise UsageError(
            f"image_size is {text!r}; expected SHORT/LONG like 600/1000, or 320, each from 32 to "
            "8192"
        )
    sides = [int(part) for part in parts]
    return (sides[0], sides[1]) if len(sides) == 2 else (None, sides[0])
