"""
Runs one compaction, from the files of a partition to a published directory.

`compactor.roles.worker` does the metastore's part (claim, transaction, commit).
"""
