"""A Spark application for each compaction: `spark-submit` starts it, and files carry requests and answers."""
