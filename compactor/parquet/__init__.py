"""
Parquet files by row groups: footers, copying, encoding anew, checking.

Works on bytes in memory and open files; knows no file system and no metastore.
"""
