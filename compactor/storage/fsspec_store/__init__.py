"""
Object stores through fsspec, for those that have no driver of their own.

What all object stores have in common is in `storage.object_store`.
"""
