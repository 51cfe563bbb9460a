"""
The rows of COMPACTION_QUEUE and COMPLETED_COMPACTIONS: requests, claims, commits, ends, history.

When a request is made is decided in `compactor.roles.initiator`; when its directories may go, by
`metastore.clean` and `compactor.roles.cleaner`.
"""
