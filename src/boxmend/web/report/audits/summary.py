"""The summary of an audit's report: what the audit found, in sentences, key figures and tables."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import (
    ALL,
    DEFAULT_PRECISION,
    MIN_LIKELY_PROBABILITY,
    count_yields,
    measure_precision,
)
from boxmend.auditing.fixes.table import GOOD_IOU, Kind
from boxmend.scoring.fixes import IN_ALL
from boxmend.scoring.repairs import RepairCounts, count_repairs
from boxmend.web.report.audits.record import AuditRecord, RecordedShare
from boxmend.web.report.content import Pattern, ReportSummary, SummaryTable, Tile
from boxmend.web.report.summary import list_patterns
from boxmend.web.report.wording import many, noun, percent, short_address
from boxmend.web.text import display_text

MAX_NOTE_CHARACTERS = 1000
UNBROKEN_DASH = "\N{WORD JOINER}\N{EN DASH}\N{WORD JOINER}"
RATE_WORDS = {
    "wrong_labels": ("of the labels are wrong", "estimated"),
    "bad_boxes": ("of the boxes are bad", f"estimated; IoU with the true box below {GOOD_IOU}"),
    "missing": ("of the objects have no annotation", "estimated"),
    "spurious": ("of the annotations show no object", "estimated"),
    "duplicates": ("of the annotations are duplicates", "estimated"),
}


def summarise_audit(record: AuditRecord) -> ReportSummary:
    """Return the sentences, key figures and tables of an audit."""
    repairs = _count_repairs(record)
    groups = [
        ("Found", [_annotation_tile(record), *_rate_tiles(record)]),
        ("Fixes", _fix_tiles(record)),
        ("Measured by people", list(_measured_tiles(record))),
        ("Compared with the truth", list(_truth_tiles(repairs))),
    ]
    tables = [_yield_table(record), _probe_table(record), _truth_table(repairs)]
    return ReportSummary(
        paragraphs=[" ".join(_sentences(record)), " ".join(_truth_sentences(repairs))],
        groups=[(title, tiles) for title, tiles in groups if tiles],
        patterns=_patterns(record),
        facts=list(_facts(record)),
        tables=tuple(table for table in tables if table is not None),
        notes=tuple(display_text(note, MAX_NOTE_CHARACTERS) for note in record.recorded.notes),
    )


def _sentences(record: AuditRecord) -> Iterator[str]:
    dataset, recorded = record.dataset, record.recorded
    source = (
        "the ledger of its training run"
        if recorded.evidence == "training run"
        else "the predictions of a detector"
    )
    yield (
        f"This audit compared {many(len(dataset), 'annotation')} on "
        f"{many(len(dataset.images), 'image')} with {source}."
    )
    share = recorded.rates.get("wrong_labels")
    if share is not None:
        yield (
            f"It estimates that {percent(share.value)} of the labels are wrong "
            f"({_interval(share)})."
        )
    if not len(record.fixes):
        yield "It proposes no fix."
        return
    chosen = record.chosen
    taken = len(chosen.rows)
    yield f"It proposes {many(len(record.fixes), 'fix', 'es')}."
    if chosen.expected_precision is None:
        yield f"None of them reaches a precision of {DEFAULT_PRECISION}: people have to decide."
    else:
        yield (
            f"{many(taken, 'fix', 'es')} {'reaches' if taken == 1 else 'reach'} a precision of "
            f"{DEFAULT_PRECISION} together, so boxmend apply makes "
            f"{'it' if taken == 1 else 'them'}; about {percent(chosen.expected_precision, 0)} of "
            "them are right."
        )
    if chosen.num_likely:
        are = "is" if chosen.num_likely == 1 else "are"
        yield (
            f"Of the others, {chosen.num_likely:,} {are} more likely an error than not: "
            "boxmend review shows them one by one."
        )


def _truth_sentences(repairs: dict[str, RepairCounts]) -> Iterator[str]:
    if IN_ALL in repairs:
        total = repairs[IN_ALL]
        yield (
            f"Compared with the truth, the fixes at precision {DEFAULT_PRECISION} repair "
            f"{total.repaired:,} of {many(total.errors, 'error')}, and {total.wrong:,} of "
            f"{many(total.applied, 'fix', 'es')} {'is' if total.wrong == 1 else 'are'} wrong."
        )


def _annotation_tile(record: AuditRecord) -> Tile:
    dataset, recorded = record.dataset, record.recorded
    note = f"on {many(len(dataset.images), 'image')}"
    if recorded.not_looked_at:
        note += f"; {recorded.not_looked_at:,} not judged: their images have no detections"
    return Tile(f"{len(dataset):,}", noun(len(dataset), "annotation"), note)


def _rate_tiles(record: AuditRecord) -> Iterator[Tile]:
    for name, (what, note) in RATE_WORDS.items():
        share = record.recorded.rates.get(name)
        if share is not None:
            yield Tile(percent(share.value), what, f"{note}; {_interval(share)}")
    noise = record.recorded.box_noise
    if noise is not None:
        note = f"estimated maximum error of box sides, relative to the box; {_interval(noise)}"
        yield Tile(percent(noise.value), "box noise", note)


def _fix_tiles(record: AuditRecord) -> list[Tile]:
    chosen = record.chosen
    expected = chosen.expected_precision
    note = "" if expected is None else f"expected to be right: {percent(expected)}"
    tiles = [
        Tile(f"{len(chosen.rows):,}", f"applied at precision {DEFAULT_PRECISION}", note),
        Tile(
            f"{chosen.num_likely:,}",
            "for review, likely errors",
            f"not applied, but with a probability of an error of {MIN_LIKELY_PROBABILITY} or more",
        ),
        Tile(
            f"{chosen.num_left - chosen.num_likely:,}",
            "less likely errors",
            "listed, not applied; most of these annotations are right",
        ),
    ]
    if record.latest:
        known = set(record.fixes.ids)
        answers = [verdict.answer for fix, verdict in record.latest.items() if fix in known]
        number = f"{answers.count('accept'):,} accepted, {answers.count('reject'):,} rejected"
        tiles.append(Tile(f"{len(answers):,}", "decided by people", number))
    return tiles


def _measured_tiles(record: AuditRecord) -> Iterator[Tile]:
    """Yield the precision that people measured on random samples, by kind and for all."""
    measured = measure_precision(record.fixes, record.verdicts)
    for name, result in measured.items():
        if result.number:
            what = "of all sampled fixes right" if name == ALL else f"of fixes of {name} right"
            interval = f"{percent(result.low, 0)} to {percent(result.high, 0)}"
            note = f"{result.right:,} of {result.number:,}; 95 % interval {interval}"
            yield Tile(percent(result.right / result.number), what, note)


def _count_repairs(record: AuditRecord) -> dict[str, RepairCounts]:
    if record.truth is None:
        return {}
    return count_repairs(record.dataset, record.fixes, record.is_applied, record.truth)


def _truth_tiles(repairs: dict[str, RepairCounts]) -> Iterator[Tile]:
    if IN_ALL not in repairs:
        return
    total = repairs[IN_ALL]
    if total.errors:
        share, note = percent(total.repaired / total.errors), f"{total.repaired:,} of"
        yield Tile(share, "of the errors repaired", f"{note} {total.errors:,}")
    if total.applied:
        right = total.applied - total.wrong
        note = f"{right:,} of {total.applied:,}; {DEFAULT_PRECISION} was asked for"
        yield Tile(percent(right / total.applied), "of the applied fixes right", note)


def _truth_table(repairs: dict[str, RepairCounts]) -> SummaryTable | None:
    if not repairs:
        return None
    return SummaryTable(
        title="Errors found and repaired, by the truth",
        headings=("kind", "errors", "found", "repaired", "wrong fixes"),
        rows=[
            (
                kind,
                *(f"{n:,}" for n in (counts.errors, counts.found, counts.repaired)),
                f"{counts.wrong:,}",
            )
            for kind, counts in repairs.items()
        ],
        note=(
            f"Found: more likely wrong than not. Repaired: a right fix at precision "
            f"{DEFAULT_PRECISION}."
        ),
    )


def _yield_table(record: AuditRecord) -> SummaryTable | None:
    yields = count_yields(record.fixes, record.latest)
    kinds = [kind.words for kind in Kind if (record.fixes.kinds == kind).any()]
    if not kinds:
        return None
    totals = [sum(counts.values()) for counts in yields.values()]
    rows = [(kind, *(f"{counts[kind]:,}" for counts in yields.values())) for kind in kinds]
    return SummaryTable(
        title="Fixes that a precision applies",
        headings=("precision", *(f"{precision}" for precision in yields)),
        rows=[*rows, (IN_ALL, *(f"{total:,}" for total in totals))],
        note=(
            "A lower precision applies more fixes, and more of them are wrong. The counts hold if "
            "all kinds are applied together; if you choose one kind in the gallery, its fixes have "
            "to reach the precision alone."
        ),
        links=("", *(f"precision={precision}" for precision in yields)),
    )


def _probe_table(record: AuditRecord) -> SummaryTable | None:
    probe = record.recorded.probe
    if not probe:
        return None
    rows = [
        (
            display_text(f"{kind}: {cause}" if cause else kind),
            f"{counts.planted:,}",
            _share_text(counts.found_share),
            _share_text(counts.right_share),
        )
        for kind, of_kind in probe.items()
        for cause, counts in (of_kind.causes or {"": of_kind}).items()
    ]
    return SummaryTable(
        title="Reliability, measured by planted errors",
        headings=("kind and cause", "planted", "found, %", "of those fixed, %"),
        rows=rows,
        note=(
            "The audit planted errors in annotations that seem right and audited again. Found: "
            "more likely wrong than not. Fixed: with a right fix. Shares with their 95 % intervals."
        ),
    )


def _patterns(record: AuditRecord) -> list[Pattern]:
    """Return the most frequent changes of labels among the likely errors, most frequent first."""
    fixes, dataset = record.fixes, record.dataset
    likely = record.chosen.p_wrong >= MIN_LIKELY_PROBABILITY
    likely &= (fixes.kinds == Kind.WRONG_LABEL) & (fixes.old_labels >= 0)
    pairs = np.stack([fixes.old_labels, fixes.new_labels], axis=1)[likely]
    totals = np.bincount(dataset.labels[dataset.labels >= 0], minlength=len(dataset.label_names))
    return list_patterns(dataset.label_names, pairs, totals)


def _facts(record: AuditRecord) -> Iterator[tuple[str, str]]:
    facts = record.run.facts()
    yield "Audit", display_text(record.name)
    for name, what in (("addresses", "Data"), ("predictions", "Predictions")):
        addresses = facts.get(name)
        if isinstance(addresses, list) and addresses:
            yield what, ", ".join(short_address(str(address)) for address in addresses)
    yield "Evidence", display_text(record.recorded.evidence)
    when = date.fromtimestamp((record.run.path / "finished").stat().st_mtime)
    yield "Finished", when.isoformat()
    versions: Any = facts.get("versions")
    if isinstance(versions, dict):
        texts = (f"{name} {version}" for name, version in versions.items())
        yield "Versions", display_text(", ".join(texts))


def _share_text(share: RecordedShare | None) -> str:
    if share is None:
        return "\N{EN DASH}"
    bounds = f"{100 * share.low:.0f}{UNBROKEN_DASH}{100 * share.high:.0f}"
    return f"{100 * share.value:.0f} ({bounds})"


def _interval(share: RecordedShare) -> str:
    return f"95 % interval {percent(share.low)} to {percent(share.high)}"
