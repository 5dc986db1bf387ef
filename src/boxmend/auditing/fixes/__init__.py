"""Fixes: what an audit proposes, what people say of it, and which of it to take."""
