"""
The hidden staging directory that a compaction writes to, on file systems and on object stores.

Making the result visible is in `engine.publish`; removing staging of attempts that ended, in `compactor.roles.fence`.
"""
