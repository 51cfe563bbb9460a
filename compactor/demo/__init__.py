"""
`make demo`: builds a small warehouse, has the daemon compact it, and compares the rows.

Only the command line's list of commands leads here. Tests and benchmarks build tables with `demo.warehouse`, too.
"""
