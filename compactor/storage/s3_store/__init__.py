"""
S3 through botocore: conditional writes and unfinished uploads.

What all object stores have in common (directories that are prefixes, listings) is in `storage.object_store`.
"""
