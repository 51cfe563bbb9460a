"""
Where databases, tables and partitions lie, and where the compactor may write and delete.

It reads the catalog and compares locations. Whether a directory holds something is asked of `compactor.storage`.
"""
