"""Fixes: the proposals of an audit, people's verdicts on them, and which ones to apply."""
