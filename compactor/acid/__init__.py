"""
Hive's ACID layout: directory names, write ids, ROW__IDs, types, and which files a snapshot needs.

Pure: it gets listings and ids as values. Reading a directory is in `compactor.storage`, reading a file in
`compactor.orc`, and what to compact is decided in `compactor.planning`.
"""
