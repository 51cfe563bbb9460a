"""
ORC files by stripes: tails, copying, recoding, keys, delete events, digests.

Works on bytes in memory; knows no file system and no metastore.
"""
