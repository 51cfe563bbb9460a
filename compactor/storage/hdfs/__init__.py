"""HDFS through hdfs-native: client, quotas, delegation tokens, time limits."""
