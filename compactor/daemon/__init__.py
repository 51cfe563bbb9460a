"""The daemon process around the roles: threads, signals, HTTP."""

from compactor.daemon.daemon import Daemon

__all__ = ["Daemon"]
