"""
Object stores through fsspec, for those that have no driver of their own: they are read, never changed.
"""
