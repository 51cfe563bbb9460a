"""
Leadership, membership and control state in a table of the metastore's database.

The table is ours, not Hive's. What the state means is in `compactor.control` and `compactor.roles.leadership`.
"""
