"""Commands that look at tables and partitions, and change nothing."""
