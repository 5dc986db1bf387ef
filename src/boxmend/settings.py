"""What a training can be told, with the reason beside each default; saved resolved in every run."""

from dataclasses import dataclass, field
from typing import Literal

from boxmend.errors import UsageError


@dataclass(frozen=True)
class Optimisation:
    """How the weights move."""

    optimizer: str = "sgd"
    """sgd, or adamw for small detectors that start from little."""
    lr: float | None = None
    """Learning rate; None means 0.00125 times the batch size, mmdetection's linear rule."""
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "step"
    """step: a tenth from `drop_at` on; cosine: down to zero over all steps."""
    drop_at: float = 0.75
    """Share of the training after which the rate drops: 9 of 12 passes."""
    warm_up_steps: int = 200
    """Steps over which the rate rises from a thousandth; a cold start at full rate diverges."""
    max_norm: float = 35.0
    """Gradients are scaled to at most this norm; 0 leaves them alone. Guards, seldom acts."""
    average: float = 0.998
    """Decay of the exponential average of the weights; 0 keeps none. Predictions come from it."""

    def __post_init__(self) -> None:
        _one_of("optimizer", self.optimizer, ("sgd", "adamw"))
        _one_of("schedule", self.schedule, ("step", "cosine"))
        _within("drop_at", self.drop_at, 0, 1)
        _within("average", self.average, 0, 1)


@dataclass(frozen=True)
class TrainSettings:
    """All that defines a run, besides its data."""

    method: str = "mend"
    """What turns annotations into targets; see `boxmend.methods.METHODS`."""
    detector: str = "resnet50"
    weights: str | None = "default"
    """default: ImageNet classification; a safetensors file; or none. Never COCO detections."""
    label_noise: float | None = None
    """Share of wrong labels where it is known; None: the method estimates it or uses its guess."""
    box_noise: float | None = None
    """How far sides are off, in shares of the box, where it is known."""
    epochs: int = 12
    batch_size: int = 16
    image_size: str = "600/1000"
    """Short/long side the images are scaled to, or the long side alone ("320")."""
    warm_up: float = 0.25
    """Share of the training before refinement begins: 3 of 12 passes, as in the paper on VOC."""
    difficult: Literal["ignore", "background"] = "ignore"
    """Difficult objects: ignore what is around them, or treat them as background."""
    proposals: int | None = None
    """Proposals of an image while training; None: the detector's own number."""
    rois: int | None = None
    """Sampled RoIs of an image; None: the detector's own number."""
    box_loss: str | None = None
    """smooth_l1 (torchvision) or l1 (mmdetection); None: the detector's own."""
    precision: str = "auto"
    """auto: bfloat16 where the device has it; float32 elsewhere."""
    seed: int = 0
    checkpoint_every: int = 500
    """Steps between checkpoints: the most work that a kill can cost."""
    log_every: int = 50
    """Steps between lines of the log; only then does the loop wait for the device."""
    strict: bool = False
    """Stop at an unreadable image instead of leaving it out."""
    optimisation: Optimisation = field(default_factory=Optimisation)

    def __post_init__(self) -> None:
        _one_of("difficult", self.difficult, ("ignore", "background"))
        _one_of("precision", self.precision, ("auto", "float32", "bfloat16"))
        for name in ("epochs", "batch_size", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected 1 or more")
        for name in ("label_noise", "box_noise"):
            if getattr(self, name) is not None:
                _within(name, getattr(self, name), 0, 1)
        _within("warm_up", self.warm_up, 0, 1)
        parsed_image_size(self.image_size)

    @property
    def learning_rate(self) -> float:
        """The rate itself, or the rule's."""
        if self.optimisation.lr is not None:
            return self.optimisation.lr
        return 0.00125 * self.batch_size


def parsed_image_size(text: str) -> tuple[int | None, int]:
    """Short and long side of "600/1000", or (None, 320) of "320"."""
    parts = text.split("/")
    if len(parts) > 2 or not all(part.isdecimal() and 32 <= int(part) <= 8192 for part in parts):
        raise UsageError(f"image_size is {text!r}; expected SHORT/LONG like 600/1000, or 320")
    sides = [int(part) for part in parts]
    return (sides[0], sides[1]) if len(sides) == 2 else (None, sides[0])


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} is {value!r}; expected one of {', '.join(known)}")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name} is {value!r}; expected a number from {low} to {high}")
