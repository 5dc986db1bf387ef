"""The summary of a report: what a run found and changed, in sentences and key figures."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, TypeGuard

import numpy as np

from boxmend.data.types import Mask, Rows
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun
from boxmend.scoring.corrections.changes import score_changes
from boxmend.web.report.content import Pattern, ReportSummary, Tile
from boxmend.web.report.gathering import DetectorScores
from boxmend.web.report.record import RunRecord
from boxmend.web.report.wording import many, noun, percent, short_address
from boxmend.web.text import display_text

MAX_PATTERNS = 8


def summarise(record: RunRecord, scores: DetectorScores, baseline: DetectorScores) -> ReportSummary:
    """Return the sentences and key figures of a record."""
    run = record.opened.run
    summary = run.summary() if run.is_finished else {}
    noise = summary["noise"] if isinstance(summary.get("noise"), dict) else {}
    groups = [
        ("Found", [_annotation_tile(record), *_noise_tiles(noise)]),
        ("Changed", _change_tiles(record)),
        ("Compared with the truth", list(_truth_tiles(record))),
        ("The detector", list(_detector_tiles(scores, baseline))),
    ]
    paragraphs = [
        " ".join([*_sentences(record, noise), *_planted_sentences(record.opened)]),
        " ".join(_result_sentences(record, scores, baseline)),
    ]
    return ReportSummary(
        paragraphs=[text for text in paragraphs if text],
        groups=[(title, tiles) for title, tiles in groups if tiles],
        patterns=patterns_of(record),
        facts=list(_facts(record)),
    )


def patterns_of(record: RunRecord) -> list[Pattern]:
    """Return the most frequent changes of labels, most frequent first."""
    opened = record.opened
    names, old = opened.dataset.label_names, opened.dataset.labels
    is_changed = opened.settlement.verdicts == Judgement.RELABELLED
    pairs = np.stack([old, opened.settlement.labels], axis=1)[is_changed]
    totals = np.bincount(old[opened.settlement.is_visited & (old >= 0)], minlength=len(names))
    return list_patterns(names, pairs, totals)


def list_patterns(names: Sequence[str], pairs: Rows, totals: Rows) -> list[Pattern]:
    """Return the most frequent pairs [n, 2] of old and new labels, most frequent first.

    `totals` are the numbers of annotations with each label.
    """
    kinds, numbers = np.unique(pairs, axis=0, return_counts=True)
    order = np.argsort(-numbers, kind="stable")[:MAX_PATTERNS]
    return [
        Pattern(
            called=display_text(names[kinds[k, 0]]),
            truly=display_text(names[kinds[k, 1]]),
            number=int(numbers[k]),
            share=float(numbers[k] / totals[kinds[k, 0]]),
            pair=f"{kinds[k, 0]}-{kinds[k, 1]}",
        )
        for k in order.tolist()
    ]


def _sentences(record: RunRecord, noise: dict[str, Any]) -> Iterator[str]:
    opened = record.opened
    n, learnt = len(opened.dataset), int(opened.settlement.is_visited.sum())
    numbers = [int(mask.sum()) for mask in _kinds_of_change(opened)]
    trained = (
        f"This run trained a detector on {many(len(opened.dataset.images), 'image')} with "
        f"{many(n, 'annotation')}"
    )
    if not (any(numbers) or opened.settlement.num_judged.any()):
        yield f"{trained}. It changed no label and no box."
        return
    judged = f"{learnt:,} of them" if learnt < n else "each of them" if n > 1 else "it"
    yield f"{trained} and judged {judged} during training."
    if _is_number(noise.get("label_noise")):
        bounds = _bounds(noise, "label_noise")
        between = f" ({' to '.join(bounds)})" if bounds else ""
        share = percent(noise["label_noise"], 0)
        yield f"It estimates that {share} of the labels are wrong{between}."
    if not any(numbers):
        yield "It changed nothing."
        return
    yield f"It {_list_changes(*numbers)}; {_gallery_hint(sum(numbers))}"
    if 2 * numbers[0] > int((opened.settlement.num_judged > 0).sum()):
        yield (
            "That is more than half of the labels: either most were wrong, or the detector learnt "
            "too little. Look at the gallery before you use the changes."
        )


def _planted_sentences(opened: OpenRun) -> Iterator[str]:
    """Yield how many annotations the run does not judge, since it planted errors there."""
    if number := len(opened.history.planted):
        yield (
            f"To measure its audit, it planted errors into {many(number, 'annotation')} in memory; "
            "annotations with planted errors are not judged and keep their values."
        )


def _list_changes(relabelled: int, moved: int, unsure: int) -> str:
    """Return the numbers of changes that are not 0, as a list in a sentence."""
    changes = [
        f"changed {many(relabelled, 'label')}" if relabelled else "",
        f"moved {many(moved, 'box', 'es')}" if moved else "",
        f"was unsure of {many(unsure, 'annotation')}" if unsure else "",
    ]
    *others, last = filter(None, changes)
    comma = "," if len(others) > 1 else ""
    return f"{', '.join(others)}{comma} and {last}" if others else last


def _gallery_hint(number: int) -> str:
    subject = "it" if number == 1 else "each"
    return f"the gallery below shows {subject} with its reason."


def _result_sentences(
    record: RunRecord, scores: DetectorScores, baseline: DetectorScores
) -> Iterator[str]:
    """Yield the results that are known: the label noise after mending, and the detector's AP50."""
    if record.truth is not None:
        labels = score_changes(record.opened, record.changes, record.truth).labels
        if labels.noise_before is not None and labels.noise_after is not None:
            yield (
                f"Compared with the truth, {percent(labels.noise_before)} of the labels were wrong "
                f"before and {percent(labels.noise_after)} are wrong now."
            )
    if scores.ap50 is not None:
        other = f", the baseline {100 * baseline.ap50:.1f}" if baseline.ap50 is not None else ""
        yield f"The detector reaches an AP50 of {100 * scores.ap50:.1f}{other}."


def _annotation_tile(record: RunRecord) -> Tile:
    dataset = record.opened.dataset
    images = many(len(dataset.images), "image")
    left_out = int((~record.opened.settlement.is_visited).sum())
    note = f"on {images}" + (
        f"; {left_out:,} not judged, such as difficult ones" if left_out else ""
    )
    return Tile(f"{len(dataset):,}", noun(len(dataset), "annotation"), note)


def _noise_tiles(noise: dict[str, Any]) -> Iterator[Tile]:
    for name, what, note in (
        ("label_noise", "of the labels are wrong", "estimated"),
        ("box_noise", "box noise", "estimated maximum error of box sides, relative to the box"),
    ):
        if _is_number(noise.get(name)):
            bounds = _bounds(noise, name)
            interval = f"; interval {' to '.join(bounds)}" if bounds else ""
            yield Tile(percent(noise[name]), what, f"{note}{interval}")


def _kinds_of_change(opened: OpenRun) -> tuple[Mask, Mask, Mask]:
    """Return masks [n] of annotations that are relabelled, moved, and unsure."""
    is_relabelled: Mask = opened.settlement.verdicts == Judgement.RELABELLED
    is_unsure: Mask = opened.settlement.verdicts == Judgement.DISCARDED
    return is_relabelled, opened.settlement.is_moved, is_unsure


def _change_tiles(record: RunRecord) -> list[Tile]:
    opened = record.opened
    learnt = int(opened.settlement.is_visited.sum())
    whole = "all" if learnt == len(opened.dataset) else "the judged ones"
    masks = _kinds_of_change(opened)
    relabelled, moved, unsure = (int(mask.sum()) for mask in masks)
    shares = (percent(number / max(learnt, 1)) for number in (relabelled, moved, unsure))
    notes = [f"{share} of {whole}" for share in shares]
    if moved:
        notes[1] += f"; mean IoU of old and new box {opened.settlement.iou[masks[1]].mean():.2f}"
    return [
        Tile(f"{relabelled:,}", f"{noun(relabelled, 'label')} changed", notes[0]),
        Tile(f"{moved:,}", f"{noun(moved, 'box', 'es')} moved", notes[1]),
        Tile(f"{unsure:,}", "unsure", f"{notes[2]}; doubtful label without a replacement"),
    ]


def _truth_tiles(record: RunRecord) -> Iterator[Tile]:
    truth, opened = record.truth, record.opened
    if truth is None:
        return
    scores = score_changes(opened, record.changes, truth)
    labels, boxes = scores.labels, scores.boxes
    if labels.relabelled:
        yield Tile(
            percent(labels.right / labels.relabelled),
            "of label changes right",
            f"{labels.right:,} of {labels.relabelled:,}; {labels.harm:,} were right before",
        )
    note = f"of {labels.wrong_before:,}; {labels.missed_but_unsure:,} of them listed as unsure"
    yield Tile(f"{labels.missed:,}", f"wrong {noun(labels.missed, 'label')} not changed", note)
    if labels.noise_before is not None and labels.noise_after is not None:
        numbers = _arrow(f"{100 * labels.noise_before:.1f}", percent(labels.noise_after))
        yield Tile(numbers, "wrong labels", "before and after")
    if boxes.moved:
        yield Tile(
            percent(boxes.better / boxes.moved),
            "of moved boxes better",
            f"{boxes.better:,} of {boxes.moved:,}; {boxes.worse:,} worse",
        )
    if boxes.mean_iou_before is not None and boxes.mean_iou_after is not None:
        numbers = _arrow(f"{boxes.mean_iou_before:.2f}", f"{boxes.mean_iou_after:.2f}")
        yield Tile(numbers, "mean IoU with the true box", "before and after; 1 is perfect")


def _detector_tiles(scores: DetectorScores, baseline: DetectorScores) -> Iterator[Tile]:
    if scores.ap50 is None:
        return
    note = "average precision at IoU 0.5, in percent"
    yield Tile(f"{100 * scores.ap50:.1f}", "AP50 of this detector", note)
    if baseline.ap50 is not None:
        gain = 100 * (scores.ap50 - baseline.ap50)
        yield Tile(
            f"{100 * baseline.ap50:.1f}",
            "AP50 of the baseline",
            f"this run has {gain:+.1f} points",
        )


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    run, history = record.opened.run, record.opened.history
    facts, settings = run.facts(), run.settings()
    yield "Run", display_text(record.name)
    for name, what in (("method", "Method"), ("detector", "Detector"), ("preset", "Preset")):
        if isinstance(settings.get(name), str):
            yield what, display_text(settings[name])
    yield "Epochs", f"{history.num_epochs:,}"
    if isinstance(settings.get("seed"), int):
        yield "Seed", str(settings["seed"])
    addresses = facts.get("addresses")
    if isinstance(addresses, list) and addresses:
        yield "Data", ", ".join(short_address(str(address)) for address in addresses)
    if run.is_finished:
        when = date.fromtimestamp((run.path / "finished").stat().st_mtime)
        yield "Finished", when.isoformat()
    versions = facts.get("versions")
    if isinstance(versions, dict):
        texts = (f"{name} {version}" for name, version in versions.items())
        yield "Versions", display_text(", ".join(texts))


def _bounds(noise: dict[str, Any], name: str) -> tuple[str, str] | None:
    low, high = noise.get(f"{name}_low"), noise.get(f"{name}_high")
    if not (_is_number(low) and _is_number(high)):
        return None
    return percent(low, 0), percent(high, 0)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _arrow(before: str, after: str) -> str:
    return f"{before} \N{RIGHTWARDS ARROW} {after}"
