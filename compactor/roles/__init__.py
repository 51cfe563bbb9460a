"""
Initiator, Worker, Cleaner and Housekeeper, one cycle at a time.

Modules beside the four folders serve more than one role. Threads, signals and HTTP are in `compactor.daemon`; what
is decided without I/O, in `compactor.planning` and `compactor.control`.
"""
