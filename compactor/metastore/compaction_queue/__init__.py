"""The rows of COMPACTION_QUEUE and COMPLETED_COMPACTIONS: requests, claims, commits, ends, history."""
