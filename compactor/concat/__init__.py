"""
Formats whose files can be joined end to end, without decoding a value: lines of text, Avro's blocks.

Doesn't know how a table's files are chosen, nor what its SerDe makes of a line or a record.
"""
