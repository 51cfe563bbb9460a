"""
Checks a staged result against its inputs before it is published.

The functions that run on executors, and what the driver makes of their results. Nothing is written here.
"""
