"""The ledger of a run: every visit of every annotation, as a Parquet dataset in RUN/ledger/.

Rows are in the order of the visits. They contain no times, so two equal runs have equal ledgers,
byte for byte.

For 860,000 annotations and 12 epochs a ledger has 545 MB (53 bytes per row, in 158 parts). Writing
it takes about 20 s of the whole training, and at most 4 MB in a checkpoint; see docs/ledger.md.
"""

from boxmend.runs.judgement import Judgement
from boxmend.runs.ledger.entries import COLUMNS, Entries
from boxmend.runs.ledger.reading import read
from boxmend.runs.ledger.writing import ROWS_PER_PART, Ledger, LedgerState

__all__ = ["COLUMNS", "ROWS_PER_PART", "Entries", "Judgement", "Ledger", "LedgerState", "read"]
