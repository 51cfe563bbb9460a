"""
The database itself: connections, dialects, schema detection, table definitions, errors.

No statement of Hive's protocol is here: those are in the other folders of `compactor.metastore`.
"""
