"""
The Initiator: finds what changed, judges it by Hive's thresholds, queues what is due.

The judgement itself is pure and in `compactor.planning.picker`; candidates are read in
`compactor.metastore.candidates`.
"""
