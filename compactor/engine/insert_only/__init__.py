"""
Compactions of insert-only tables: small files become full-sized ones, all others are carried over whole.

The formats' own rules live in their packages (`orc`, `parquet`), the choice of files in `planning.insert_only.joins`.
"""
