"""
Cuts rows out of an encoded stripe: what holds no removed value keeps its bytes, compressed as it is.

`stripe` is the entrance. Source: docs/orc.md, "Cutting"; the ORC specification, "Run Length Encoding".
"""
