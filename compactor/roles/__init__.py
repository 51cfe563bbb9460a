"""Initiator, Worker, Cleaner and Housekeeper, one cycle at a time; `compactor.daemon` runs the cycles."""
