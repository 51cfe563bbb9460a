"""`make demo`: builds a small warehouse, has the daemon compact it, and compares the rows."""
