"""
What is the case in one metastore, as values: why entries wait, what isn't cleaned, daemons and leaders, and records of
queue and history.

The command line, the metrics and whatever else shows something ask here, so that one question has one answer. Reads the
metastore and the control state; changes and prints nothing.
"""
