"""
Hive's housekeeping (time-outs, purges) when no metastore service does it, and recovery of what dead workers left.

Its statements are in `compactor.metastore`; a worker's own undoing is in `compactor.roles.worker.rollback`.
"""
