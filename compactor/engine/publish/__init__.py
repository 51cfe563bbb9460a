"""
Makes a verified result visible, by a rename or by completing uploads, after the last checks.

The result was staged by `staging` and verified by `verify`.
"""
