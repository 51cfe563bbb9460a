"""
The Worker: claims an entry, compacts, publishes, commits; and how it retries, gives back and rolls back.

The data work is in `compactor.engine`, the rows of the queue in `compactor.metastore.compaction_queue`.
"""
