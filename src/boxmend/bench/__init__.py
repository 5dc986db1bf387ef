"""Measurements that users can repeat: each a table, with the hardware and versions it is from."""
