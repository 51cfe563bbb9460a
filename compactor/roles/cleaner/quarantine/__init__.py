"""
What the Cleaner keeps aside in a partition and for how long, the undoing of compactions from it, and what is left over.
"""
