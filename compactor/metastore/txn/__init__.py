"""Hive's transactions: ids, snapshots, write ids, locks, and the mutexes of its housekeeping."""
