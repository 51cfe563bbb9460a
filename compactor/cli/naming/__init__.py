"""What users call tables and partitions: names and patterns, and what of the catalog, queue and history they mean."""
