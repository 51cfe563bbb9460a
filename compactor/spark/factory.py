"""Makes the submitter that `spark.mode` asks for."""

from compactor.settings import Settings
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import StoppableSubmitter


def submitter_for(settings: Settings) -> StoppableSubmitter:
    """The submitter that the settings ask for; it starts nothing before a job or `warm_up` comes."""
    return ApplicationSubmitter(settings) if settings.spark.mode == "submit" else SparkSubmitter(settings)
