"""What an audit promises, on the embedded dataset with kept predictions."""

import pytest

from boxmend.auditing.audit import AuditSettings, audit
from boxmend.bench.audit import OURS, AuditFigures, measure_audit
from boxmend.scoring.finders.kinds import OTHERS
from boxmend.scoring.fixes import IN_ALL, called_wrong
from tests.auditing import audit_data

CALIBRATION_ERROR = 0.05
PRECISION, LEAST, MOST = 0.95, 0.93, 0.98
CALLED_WRONG = 0.01


@pytest.fixture(scope="module")
def noisy() -> AuditFigures:
    pytest.importorskip("cleanlab")
    audited = audit_data.audited(audit_data.NOISY)
    result = audit(audited.dataset, audited.predictions, AuditSettings(probe=0))
    return measure_audit(audited.dataset, audited.predictions, audited.truth, result, PRECISION)


@pytest.mark.parametrize("finder", OTHERS)
def test_the_audit_ranks_errors_better_than_others_in_every_kind_they_know(
    noisy: AuditFigures, finder: str
) -> None:
    table = {
        (score.finder, score.kind): score.average_precision for score in noisy.comparison.scores
    }
    kinds = [kind for name, kind in table if name == finder]
    assert kinds
    behind = {
        kind: (table[OURS, kind], table[finder, kind])
        for kind in kinds
        if not (table[OURS, kind] or 0.0) > (table[finder, kind] or 0.0)
    }
    assert behind == {}


def test_probabilities_of_annotations_are_calibrated(noisy: AuditFigures) -> None:
    errors = {kind: one.error for kind, one in noisy.calibration.items()}
    assert noisy.missing is not None
    errors["missing"] = noisy.missing.by_kind["missing"].calibration.error
    assert {kind: one for kind, one in errors.items() if (one or 0.0) > CALIBRATION_ERROR} == {}


def test_probabilities_of_fixes_are_calibrated(noisy: AuditFigures) -> None:
    error = noisy.fixes.by_kind[IN_ALL].calibration.error
    assert error is not None
    assert error <= CALIBRATION_ERROR


def test_fixes_chosen_for_a_precision_are_that_precise(noisy: AuditFigures) -> None:
    chosen = noisy.at_precision.scores.by_kind[IN_ALL]
    assert chosen.fixes > 500
    assert chosen.precision is not None
    assert LEAST <= chosen.precision <= MOST


def test_without_noise_hardly_any_annotation_is_called_wrong() -> None:
    audited = audit_data.audited(audit_data.CLEAN)
    result = audit(audited.dataset, audited.predictions, AuditSettings(probe=0))
    share = called_wrong(result.p_wrong)[IN_ALL]
    assert share is not None
    assert share < CALLED_WRONG
