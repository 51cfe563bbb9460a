"""
Pure decisions about insert-only tables: whether their files can be joined, which become one, and how these are named.

What stripes of full ACID tables become is decided beside this package.
"""
