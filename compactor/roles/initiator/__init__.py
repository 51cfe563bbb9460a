"""The Initiator: finds what changed, judges it by Hive's thresholds, queues what is due."""
