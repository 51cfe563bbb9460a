"""Time that passes here: for how long something is still valid, never what time it is. Goes on while the process is stopped and the machine sleeps."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some moment."""
    return time.clock_gettime(_CLOCK)
