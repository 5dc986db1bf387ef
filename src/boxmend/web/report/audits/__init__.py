"""The report of an audit: its record, summary, figures and gallery."""
