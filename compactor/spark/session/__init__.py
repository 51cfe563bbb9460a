"""
The Spark session that the daemon's compactions share: a child process with its JVM, and the messages between them.

A session of its own for each compaction is in `spark.application`; which functions run, `compactor.engine` decides.
"""
