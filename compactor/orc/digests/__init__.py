"""Digests of values, by which what was written is compared with what was read."""
