"""
Reads and writes Hive's metastore database directly: catalog, transactions, compaction queue.

No thrift service is used. Decisions are made in `compactor.planning` and `compactor.roles`.
"""
