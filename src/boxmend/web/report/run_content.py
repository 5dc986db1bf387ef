"""The content of a training run's report."""

from functools import partial

from boxmend.auditing.fixes.run_fixes import has_verdicts
from boxmend.runs.folder import Run, open_run
from boxmend.web.report.content import ReportContent, apply_command
from boxmend.web.report.figures import FIGURES
from boxmend.web.report.gallery import columns, gallery_of, requests_of
from boxmend.web.report.gathering import DetectorScores, ReportSettings, gather, scores_of
from boxmend.web.report.summary import summarise

WHY_NO_COMMAND = (
    "People gave verdicts on the fixes of this run's audit, and `boxmend apply` makes these fixes "
    "instead of the changes on this page."
)


def make_run_content(run: Run, settings: ReportSettings) -> ReportContent:
    """Return the content of the report of a finished training run."""
    record = gather(run.path, settings)
    gallery = gallery_of(record)
    drawings = (draw(record) for draw in FIGURES.values())
    return ReportContent(
        kind="run",
        name=record.name,
        summary=summarise(record, scores_of(record.opened.run), _baseline(settings)),
        figures=[figure for figure in drawings if figure is not None],
        requests=requests_of(gallery),
        columns=partial(columns, gallery),
        num_shown=len(gallery),
        num_left_out=0,
        command=apply_command(
            record.name,
            "RUN",
            is_moved=settings.data is not None,
            why_none=WHY_NO_COMMAND if has_verdicts(run) else "",
        ),
    )


def _baseline(settings: ReportSettings) -> DetectorScores:
    return DetectorScores() if settings.baseline is None else scores_of(open_run(settings.baseline))
