"""The hidden staging directory that a compaction writes to, on file systems and on object stores."""
