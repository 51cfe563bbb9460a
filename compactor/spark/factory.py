"""
Makes the submitter that `spark.mode` asks for, when the first job comes.

Until then the daemon doesn't import PySpark, which is large.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from compactor.settings import Settings
from compactor.spark.submitter import JobName, StoppableSubmitter

Given = TypeVar("Given")
Made = TypeVar("Made")


class ConfiguredSubmitter:
    """The `StoppableSubmitter` that the settings ask for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._made: StoppableSubmitter | None = None

    def _real(self) -> StoppableSubmitter:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> StoppableSubmitter:
        if self._settings.spark.mode == "submit":
            from compactor.spark.application.submitter import ApplicationSubmitter  # noqa: PLC0415 - see above

            return ApplicationSubmitter(self._settings)
        from compactor.spark.session.session import SparkSubmitter  # noqa: PLC0415

        return SparkSubmitter(self._settings)

    def run(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        *,
        progress: Callable[[float], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Made]:
        """See `Submitter.run`."""
        return self._real().run(job, function, tasks, progress=progress, cancelled=cancelled)

    def end(self, job: JobName) -> None:
        """See `Submitter.end`."""
        if self._made is not None:
            self._made.end(job)

    def application(self, job: JobName) -> str | None:
        """See `StoppableSubmitter.application`."""
        return self._made.application(job) if self._made is not None else None

    @property
    def cold(self) -> bool:
        """See `StoppableSubmitter.cold`."""
        return self._real().cold

    def warm_up(self, seconds: float) -> bool:
        """See `StoppableSubmitter.warm_up`."""
        return self._real().warm_up(seconds)

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        """See `StoppableSubmitter.end_left_over`."""
        if self._settings.spark.mode == "submit":
            self._real().end_left_over(keys, application)

    def stop(self) -> None:
        """See `StoppableSubmitter.stop`."""
        if self._made is not None:
            self._made.stop()
