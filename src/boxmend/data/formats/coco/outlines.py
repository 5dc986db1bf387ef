"""Write the boxes around segmentations into documents whose annotations have no box."""

from dataclasses import replace

from boxmend.data.dataset import Dataset
from boxmend.data.formats.coco.source import CocoSource


def write_outlined_boxes(dataset: Dataset) -> Dataset:
    """Return a dataset whose written COCO documents get the boxes that were read from polygons.

    Otherwise such an annotation keeps its bytes until its box changes.
    """
    sources = tuple(
        replace(source, writes_outlined=True) if isinstance(source, CocoSource) else source
        for source in dataset.sources
    )
    return replace(dataset, sources=sources)
