"""Spurious annotations and missing objects, as the audit finds them, with memory.

The audit plants errors of its own and compares them with the annotations by the detections of this
update; see `boxmend.auditing.presence` and `missing`. In large datasets each update judges a part
of the images.
"""

from dataclasses import replace

import numpy as np

from boxmend.auditing.evidence import Detected, Evidence, Objects
from boxmend.auditing.missing import find_missing
from boxmend.auditing.presence import judge_presence
from boxmend.data.types import Floats, Mask, Rows
from boxmend.repair.mender.memory import (
    MEMORY,
    MenderMemory,
    Sightings,
    remember_doubts,
    remember_sightings,
)
from boxmend.repair.mender.scene import Scene
from boxmend.repair.mender.settings import MenderSettings

SEED = 0
MAX_ANNOTATIONS = 250_000  # that one update judges


def remember_objects(
    scene: Scene,
    memory: MenderMemory,
    seen: tuple[Evidence, Detected],
    believed: tuple[Floats, float],
    settings: MenderSettings,
    number: int,
) -> MenderMemory:
    """Judge which annotations have no object and which objects no annotation, and remember it.

    `believed` is the probability [k] that a label is right, and the box noise; `number` counts the
    updates.
    """
    if not settings.spurious and settings.missing == "off":
        return memory
    (evidence, detected), (p_right, box_noise) = seen, believed
    is_part = _choose_images(scene, number)
    rows = np.flatnonzero(is_part[scene.objects.image_rows])
    objects = _take_objects(scene.objects, rows)
    detected = _take_detections(detected, np.flatnonzero(is_part[detected.image_rows]))
    if not len(detected):
        return memory
    of_part = replace(evidence, confidences=evidence.confidences[rows])
    random = np.random.default_rng(SEED)
    presence = judge_presence(objects, of_part, detected, scene.sizes, box_noise, random)
    is_seen = np.zeros(len(scene.images), np.bool_)
    is_seen[detected.image_rows] = True
    least = settings.memory_min_weight
    if settings.spurious:
        doubts, is_new = np.zeros(len(scene.objects)), np.zeros(len(scene.objects), np.bool_)
        doubts[rows], is_new[rows] = presence.p_spurious, is_seen[objects.image_rows]
        memory = remember_doubts(memory, doubts, is_new, least)
    if settings.missing == "off":
        return memory
    explained = objects, scene.ignored, detected
    found = find_missing(explained, 1 - presence.p_spurious, p_right[rows], box_noise)
    is_probable = found.p_missing >= MEMORY.min_probability
    places = found.detections[is_probable]
    new = Sightings(
        detected.image_rows[places],
        detected.labels[places],
        detected.boxes[places],
        found.p_missing[is_probable],
        found.p_fix[is_probable],
        np.ones(len(places), np.int64),
    )
    return remember_sightings(memory, new, is_seen, least)


def _choose_images(scene: Scene, number: int) -> Mask:
    """Mark the images that this update judges: all, or a part of a large dataset."""
    num_parts = -(-len(scene.objects) // MAX_ANNOTATIONS) or 1
    is_part: Mask = np.arange(len(scene.images)) % num_parts == number % num_parts
    return is_part


def _take_objects(objects: Objects, rows: Rows) -> Objects:
    if len(rows) == len(objects):
        return objects
    columns = objects.image_rows[rows], objects.labels[rows], objects.boxes[rows]
    return Objects(*columns, num_labels=objects.num_labels)


def _take_detections(detected: Detected, rows: Rows) -> Detected:
    if len(rows) == len(detected):
        return detected
    vectors = detected.class_scores
    return Detected(
        detected.image_rows[rows],
        detected.labels[rows],
        detected.scores[rows],
        detected.boxes[rows],
        None if vectors is None else vectors[rows],
    )
