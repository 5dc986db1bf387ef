"""Measurements that users can repeat; each result states hardware and versions."""
