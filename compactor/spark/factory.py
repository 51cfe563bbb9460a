"""Makes the submitter that `spark.mode` asks for."""

from compactor.settings import Settings
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import Failed, StoppableSubmitter


def submitter_for(settings: Settings, failed: Failed = lambda _: None) -> StoppableSubmitter:
    """
    The submitter that the settings ask for; it starts nothing before a job or `warm_up` comes.

    Args:
        failed: told of each task attempt that failed on a cluster.
    """
    return (
        ApplicationSubmitter(settings, failed) if settings.spark.mode == "submit" else SparkSubmitter(settings, failed)
    )
