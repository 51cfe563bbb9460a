"""Where databases, tables and partitions lie, and where the compactor may write and delete."""
