"""
A Spark application for each compaction: `spark-submit` starts it, and files carry requests and answers.

The shared session is in `spark.session`; resources and configuration of both are in `compactor.spark`.
"""
