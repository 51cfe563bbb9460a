"""Pure decisions: whether a partition is due, which files to take, which stripes to copy, what it costs."""
