"""
`make demo`: builds a small warehouse, has the daemon compact it, and compares the rows.

Needs what the daemon needs, and nothing of the tests. Tests and benchmarks build tables with `demo.warehouse`, too.
"""
