"""Hive's housekeeping (time-outs, purges) when no metastore service does it, and recovery of what dead workers left."""
