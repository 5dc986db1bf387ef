"""Write docs/audit-suite.md from the figures of the audit suite.

    boxmend bench audit-suite VOC:trainval --predictions results/voc320-out-of-fold.parquet \\
      --out suite --json > suite.json
    python tools/audit_page.py suite.json

The first argument is the JSON of the suite; its tables are kept in results/audit-suite.json.
Without an argument, the page is written from that file. The same figures give the same page.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from boxmend.bench.audit.reliability_chart import draw_reliability
from boxmend.bench.audit.suite_tables import ReliabilityPoint, SuiteTables
from boxmend.data.files.json_text import encode_json
from boxmend.scoring.fixes import IN_ALL
from results_sections import markdown_table

PROJECT = Path(__file__).parent.parent
FIGURES = Path("results") / "audit-suite.json"
PAGE = Path("docs") / "audit-suite.md"
CHART = Path("docs") / "images" / "results" / "audit-reliability.svg"
DASH = "-"
OPENING = """# The audit suite: results

These are the figures of `boxmend bench audit-suite` on VOC 2007 trainval at 320 pixels (5,011
images, VOC files; difficult objects do not count), with the out-of-fold detections in
`results/voc320-out-of-fold.parquet`. [The comparison page](audit-comparison.md) explains the
regimes, the finders and the columns. These commands make the page:

```sh
boxmend bench audit-suite VOC:trainval --predictions results/voc320-out-of-fold.parquet \\
  --out suite --json > suite.json
python tools/audit_page.py suite.json
```

The settings of the audit were chosen on these data with these seeds ({seeds}). All tables pool the
seeds. VOC itself has errors: an object that VOC lacks counts as a wrong fix."""
PROMISE = """Fixes taken for a precision, and the share that is right. *Broken* means that the 95 %
interval ends below the precision. Regimes with fewer than 50 fixes have no verdict."""
ALT = "Reliability diagram: the stated probability and the share that is right, by kind of fix"
CALIBRATION = """The diagram has all regimes together. The table has kinds with at least 200 fixes
in a regime; *broken* means an error above 0.05."""
YIELD = """*k* is the largest number of most probable fixes of which 95 % are right, as a sum over
the seeds. The goal is to take at least 0.6 *k* at a precision of 0.95, where *k* is 100 or more."""
IMAGES = """Average precision of rankings of images that have an error: by the highest probability
of the audit in an image, and by the formulas of Ultralytics' pull request 24995."""


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of a run of the suite, and its seeds."""

    seeds: list[int]
    tables: SuiteTables


def main(arguments: Sequence[str]) -> None:
    """Write the figures, if they are given, then the page and its chart."""
    if arguments:
        answer = msgspec.json.decode(Path(arguments[0]).read_bytes())
        kept = {"seeds": answer["seeds"], "tables": _round(answer["tables"])}
        (PROJECT / FIGURES).write_bytes(encode_json(kept, indent=1) + b"\n")
    for path, content in pages(PROJECT).items():
        (PROJECT / path).write_bytes(content)
        print(f"wrote {path}")


def pages(project: Path) -> dict[Path, bytes]:
    """Return the page and its chart for the figures in a project folder, by their paths."""
    figures = msgspec.json.decode((project / FIGURES).read_bytes(), type=Figures)
    chart = draw_reliability(_of_single_kinds(figures.tables.reliability))
    return {PAGE: f"{_page(figures)}\n".encode(), CHART: chart}


def _round(value: Any) -> Any:
    """Return plain data with numbers of five decimals."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: _round(part) for key, part in value.items()}
    return [_round(part) for part in value] if isinstance(value, list) else value


def _of_single_kinds(
    points: Mapping[str, Sequence[ReliabilityPoint]],
) -> dict[str, Sequence[ReliabilityPoint]]:
    return {kind: row for kind, row in points.items() if kind != IN_ALL}


def _page(figures: Figures) -> str:
    tables = figures.tables
    parts = [
        OPENING.format(seeds=", ".join(map(str, figures.seeds))),
        _summary(tables),
        "## Ranking",
        "Average precision. The best is bold, and so are others within 0.01 of it.",
        _rankings(tables),
        "## Promise",
        PROMISE,
        _promises(tables),
        "## Calibration of the fixes",
        f"![{ALT}]({CHART.relative_to('docs').as_posix()})",
        CALIBRATION,
        _calibration(tables),
        "## Yield",
        YIELD,
        _yields(tables),
        "## Rates",
        _rates(tables),
        "## Images",
        IMAGES,
        _images(tables),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _summary(tables: SuiteTables) -> str:
    """Return the sentences at the top, counted from the tables."""
    behind = [f"{row.kind}, {row.regime}" for row in tables.ranking if row.verdict == "behind"]
    promises = [row for row in tables.promise if row.verdict != "too few"]
    broken = [f"{row.regime} at {row.precision:g}" for row in promises if row.verdict == "broken"]
    calibrated = [
        row for row in tables.calibration if row.verdict != "too few" and row.kind != IN_ALL
    ]
    off = [f"{row.kind}, {row.regime}" for row in calibrated if row.verdict == "broken"]
    yields = [row for row in tables.yields if row.verdict != "too few"]
    low = [row.regime for row in yields if row.verdict == "broken"]
    inside = sum(row.inside for row in tables.rates)
    intervals = sum(row.seeds for row in tables.rates)
    clean = ", ".join(
        f"{row['fixes_at_0.9']:g} fixes and {row['called_wrong']:.2%} called wrong"
        for row in tables.clean[:1]
    )
    lines = [
        f"**Ranking:** best or equal in {len(tables.ranking) - len(behind)} of "
        f"{len(tables.ranking)} rankings{_list_exceptions(behind, 'behind')}.",
        f"**Promise:** held in {len(promises) - len(broken)} of {len(promises)} cases"
        f"{_list_exceptions(broken, 'broken')}.",
        f"**Calibration:** error of at most 0.05 in {len(calibrated) - len(off)} of "
        f"{len(calibrated)} cases{_list_exceptions(off, 'larger')}.",
        f"**Yield:** at least 0.6 *k* in {len(yields) - len(low)} of {len(yields)} regimes"
        f"{_list_exceptions(low, 'less')}.",
        f"**Rates:** {inside} of {intervals} intervals hold the true rate.",
        f"**Clean data:** at a precision of 0.9, {clean}.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _list_exceptions(names: Sequence[str], word: str) -> str:
    return f"; {word}: {'; '.join(names)}" if names else ""


def _rankings(tables: SuiteTables) -> str:
    finders = list(tables.ranking[0].ap)
    rows = []
    for row in tables.ranking:
        best = max(value for value in row.ap.values() if value is not None)
        cells = [_emphasise(row.ap[finder], best) for finder in finders]
        rows.append((row.kind, row.regime, f"{row.errors:,.0f}", *cells))
    return markdown_table(("kind", "regime", "errors", *finders), rows)


def _emphasise(value: float | None, best: float) -> str:
    if value is None:
        return DASH
    return f"**{value:.3f}**" if value >= best - 0.01 else f"{value:.3f}"


def _promises(tables: SuiteTables) -> str:
    rows = [
        (
            *(row.regime, f"{row.precision:g}", f"{row.fixes:,}", f"{row.right / row.fixes:.3f}"),
            f"{row.low:.3f} to {row.high:.3f}",
            "" if row.verdict == "too few" else row.verdict,
        )
        for row in tables.promise
        if row.fixes
    ]
    head = ("regime", "precision", "fixes", "right", "95 % interval", "verdict")
    return markdown_table(head, rows)


def _calibration(tables: SuiteTables) -> str:
    rows = [
        (
            *(row.kind, row.regime, f"{row.fixes:,.0f}"),
            *(f"{value:.3f}" for value in (row.expected, row.right, row.error)),
            row.verdict,
        )
        for row in sorted(tables.calibration, key=lambda row: row.kind)
        if row.verdict != "too few" and row.kind != IN_ALL
    ]
    head = ("kind", "regime", "fixes", "expected right", "right", "error", "verdict")
    return markdown_table(head, rows)


def _yields(tables: SuiteTables) -> str:
    rows = [
        (row.regime, f"{row.k:,}", f"{row.taken:,}", f"{row.right:,}", row.verdict)
        for row in tables.yields
        if row.k or row.taken
    ]
    return markdown_table(("regime", "k", "taken at 0.95", "right", "verdict"), rows)


def _rates(tables: SuiteTables) -> str:
    rows = [
        (
            *(row.regime, row.kind, f"{row.true:.1%}", f"{row.estimate:.1%}"),
            f"{row.low:.1%} to {row.high:.1%}",
            f"{row.inside} of {row.seeds}",
        )
        for row in tables.rates
        if row.true > 0
    ]
    planted = [row for row in tables.rates if row.true > 0]
    inside, all_planted = sum(row.inside for row in planted), sum(row.seeds for row in planted)
    head = ("regime", "kind", "true", "estimated", "95 % interval", "intervals that hold it")
    return (
        f"Of the kinds that a regime plants, {inside} of {all_planted} intervals hold the true "
        f"rate:\n\n{markdown_table(head, rows)}"
    )


def _images(tables: SuiteTables) -> str:
    rows = [
        (
            *(row.kind, row.regime, f"{row.images:,.0f}"),
            *(DASH if value is None else f"{value:.3f}" for value in row.ap.values()),
        )
        for row in tables.images
    ]
    return markdown_table(("kind", "regime", "images", "boxmend", "Ultralytics"), rows)


if __name__ == "__main__":
    main(sys.argv[1:])
