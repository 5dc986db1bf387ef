"""The content of an audit's report."""

from functools import partial

from boxmend.runs.folder import Run
from boxmend.web.report.audits.figures import AUDIT_FIGURES
from boxmend.web.report.audits.gallery import (
    audit_columns,
    audit_gallery_of,
    request_audit_pictures,
)
from boxmend.web.report.audits.record import gather_audit
from boxmend.web.report.audits.summary import summarise_audit
from boxmend.web.report.content import ReportContent, apply_command
from boxmend.web.report.gathering import ReportSettings


def make_audit_content(run: Run, settings: ReportSettings) -> ReportContent:
    """Return the content of the report of a finished audit."""
    record = gather_audit(run, settings)
    gallery = audit_gallery_of(record)
    drawings = (draw(record) for draw in AUDIT_FIGURES.values())
    return ReportContent(
        kind="audit",
        name=record.name,
        summary=summarise_audit(record),
        figures=[figure for figure in drawings if figure is not None],
        requests=request_audit_pictures(gallery) if len(gallery) else [],
        columns=partial(audit_columns, gallery),
        num_shown=len(gallery),
        num_left_out=len(record.fixes) - len(gallery),
        command=apply_command(record.name, "AUDIT", is_moved=settings.data is not None),
    )
