"""A finding: one error or doubt at one place in a dataset."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding: errors make `boxmend check` exit with 1, warnings do not."""

    ERROR = "error"
    WARNING = "warning"


KINDS = {
    "malformed": (Severity.ERROR, "an entry that cannot be read as an annotation or image"),
    "unsafe-name": (Severity.ERROR, "a file name that is absolute or leads out of its folder"),
    "duplicate-id": (Severity.ERROR, "an id that several entries share"),
    "unknown-category": (Severity.ERROR, "an annotation of a category that is not declared"),
    "unknown-image": (Severity.ERROR, "an annotation of an image that is not declared"),
    "box-not-finite": (Severity.ERROR, "a box that is not four finite numbers"),
    "box-flipped": (Severity.ERROR, "a box whose right or lower side comes first"),
    "box-empty": (Severity.ERROR, "a box of zero width or height"),
    "box-outside": (Severity.ERROR, "a box that extends beyond its image"),
    "missing-image": (Severity.ERROR, "an image file that does not exist"),
    "unreadable-image": (Severity.ERROR, "an image file that cannot be decoded"),
    "truncated-image": (Severity.ERROR, "an image file whose end is missing"),
    "inexact-name": (Severity.WARNING, "a file name that was read as that of another file"),
    "polygon": (Severity.WARNING, "a polygon where a box was expected"),
    "size-differs": (Severity.WARNING, "a recorded image size that the file contradicts"),
    "exif-rotation": (Severity.WARNING, "an image that viewers rotate by its EXIF tag"),
    "duplicate-box": (Severity.WARNING, "two annotations of one image with the same box"),
    "duplicate-image": (Severity.WARNING, "the same image content under two names"),
    "near-duplicate": (Severity.WARNING, "two images of different splits that look the same"),
    "no-annotations": (Severity.WARNING, "an image without annotations"),
    "no-label-file": (Severity.WARNING, "a missing label file or split folder"),
    "class-imbalance": (Severity.WARNING, "a category with few or no annotations"),
}
"""Every kind of finding with its severity and its meaning."""


@dataclass(frozen=True)
class Finding:
    """One finding: where it is (`file`, `image`, `annotation_id`) and what it is (`message`)."""

    kind: str
    message: str
    file: str
    image: str | None = None
    annotation_id: int | str | None = None
    """The id in the dataset that `boxmend.load` returns."""

    @property
    def severity(self) -> Severity:
        """Return whether this kind is an error or a warning."""
        return KINDS[self.kind][0]

    def __str__(self) -> str:
        place = self.file
        if self.annotation_id is not None:
            place += f", annotation {self.annotation_id}"
        return f"{self.severity} {self.kind}: {place}: {self.message}"
