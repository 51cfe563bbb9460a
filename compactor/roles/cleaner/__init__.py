"""
The Cleaner: removes what compactions replaced, what aborted writes left, and what was dropped, once no reader can need
it.
"""
