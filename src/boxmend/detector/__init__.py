"""Faster R-CNN for padded batches: features, proposals, scores, losses and detections.

It has torchvision's parameters, processes a whole batch at once in fixed shapes with masks, and
never waits for the device. `build` makes a `Detector` by name. Labels are 0 .. C - 1; class scores
have 1 + C columns, background first.
"""

from boxmend.detector.assignment import Targets
from boxmend.detector.backbones import DETECTORS, build, freeze
from boxmend.detector.detections import PaddedDetections, SecondStageOutput
from boxmend.detector.faster_rcnn import (
    Detector,
    Features,
    RoiLosses,
    RoiOutput,
    RoiSample,
    RpnLosses,
)
from boxmend.detector.numbers import DetectorNumbers
from boxmend.detector.proposals import Proposals, RpnOutput
from boxmend.detector.weights import describe, ensure_num_labels, load_file, read_metadata, save

__all__ = [
    "DETECTORS",
    "Detector",
    "DetectorNumbers",
    "Features",
    "PaddedDetections",
    "Proposals",
    "RoiLosses",
    "RoiOutput",
    "RoiSample",
    "RpnLosses",
    "RpnOutput",
    "SecondStageOutput",
    "Targets",
    "build",
    "describe",
    "ensure_num_labels",
    "freeze",
    "load_file",
    "read_metadata",
    "save",
]
