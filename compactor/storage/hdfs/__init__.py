"""
HDFS through hdfs-native: client, quotas, delegation tokens, time limits.

Renewing tokens for Spark is in `compactor.spark`; Hive's change management on HDFS, in `storage.change_management`
and `compactor.engine`.
"""
