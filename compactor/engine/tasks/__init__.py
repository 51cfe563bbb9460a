"""
The tasks that run on executors: functions, their arguments and their results.

Knows nothing of the metastore. The functions of verification are in `engine.verify`.
"""
