"""
File systems and object stores behind one protocol (`storage.base`), with one driver for each kind.

Knows no ACID names beyond what a listing needs, no plan and no metastore: callers say what to read, rename or delete,
and `storage.guarded` asks their rule whether a place may be changed.
"""
