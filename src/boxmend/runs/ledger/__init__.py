"""What happened to each annotation at each visit: one Parquet dataset per run, RUN/ledger/.

Rows stand in the order in which they were made, and nothing in them depends on the clock: two
equal runs have equal ledgers, byte for byte.

For 860,000 annotations and 12 epochs it weighs 545 MB (53 bytes a row, in 158 parts) and costs some
20 s of the whole training, with 4 MB at most in a checkpoint; docs/ledger.md has the figures.
"""

from boxmend.runs.judgement import Judgement
from boxmend.runs.ledger.entries import COLUMNS, Entries
from boxmend.runs.ledger.reading import read
from boxmend.runs.ledger.writing import ROWS_PER_PART, Ledger, LedgerState

__all__ = ["COLUMNS", "ROWS_PER_PART", "Entries", "Judgement", "Ledger", "LedgerState", "read"]
