"""
The Cleaner's queries and changes in the metastore: ready entries, readers, aborted writes, purges.

No file is touched here; removing is in `compactor.roles.cleaner`.
"""
