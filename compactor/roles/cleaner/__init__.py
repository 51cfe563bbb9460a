"""
The Cleaner: removes what compactions replaced, what aborted writes left, and what was dropped, once no reader can need
it.

The metastore's side (which entries are ready, who may still read) is in `compactor.metastore.clean`.
"""
