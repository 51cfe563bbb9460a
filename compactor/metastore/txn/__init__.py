"""
Hive's transactions: ids, snapshots, write ids, locks, and the mutexes of its housekeeping.

The components of aborted writes are in `metastore.clean`, the queue's rows in `metastore.compaction_queue`.
"""
