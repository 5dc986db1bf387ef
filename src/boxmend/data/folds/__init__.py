"""Folds: splits by which any trainer makes predictions of images that it has not seen.

`write_folds` writes k pairs of datasets, train and test, in the format of the input, and a
manifest of which image is in which fold. `read_manifest` reads it for a dataset.
"""

from boxmend.data.folds.manifest import FOLDS_FILE, FoldManifest, fold_folder, read_manifest
from boxmend.data.folds.splitting import FRAMES, FoldSettings, split
from boxmend.data.folds.writing import Folds, write_folds

__all__ = [
    "FOLDS_FILE",
    "FRAMES",
    "FoldManifest",
    "FoldSettings",
    "Folds",
    "fold_folder",
    "read_manifest",
    "split",
    "write_folds",
]
