"""
Decides, without I/O: whether a partition is due, which files to take, which stripes to copy, what it costs.

Facts come in as values and a plan goes out as one. `compactor.engine` reads the facts and runs the plan;
`compactor.roles` asks when.
"""
