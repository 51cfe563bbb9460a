"""
Runs functions on Spark: in a session that the daemon's compactions share, or in an application for each compaction.

Knows nothing of Hive or ORC: the engine decides what is run and what it returns.
"""
