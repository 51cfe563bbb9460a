"""The web page of a Spark application, from the application's id in the queue entry."""

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from compactor.settings import Settings

_CUT = re.compile(r"spark-[0-9a-f]{26}")
"""A Kubernetes application's id as the queue's column, 32 characters wide, cuts it: no page has that name."""
_WEB = "yarn.resourcemanager.webapp"


def tracking_url(settings: Settings, application: str | None) -> str | None:
    """
    The application's page; None when the id isn't an application's, or when no setting or configuration tells where the
    cluster's pages are.
    """
    if application is None or not is_application(application) or _CUT.fullmatch(application):
        return None
    if settings.spark.tracking_url:
        return settings.spark.tracking_url.replace("{id}", application)
    if not application.startswith("application_"):
        return None
    folder = settings.hdfs.conf_dir or os.environ.get("YARN_CONF_DIR") or os.environ.get("HADOOP_CONF_DIR")
    web = _resource_manager(Path(folder) / "yarn-site.xml") if folder else None
    return f"{web}/cluster/app/{application}" if web else None


def is_application(job_id: str | None) -> bool:
    """Whether a job id is the id of a Spark application: of YARN, a standalone cluster, Kubernetes, or this machine."""
    return job_id is not None and job_id.startswith(("application_", "app-", "spark-", "local-"))


def _resource_manager(path: Path) -> str | None:
    """Address of the first ResourceManager's pages, from a yarn-site.xml; None when the file doesn't tell."""
    try:
        found = {item.findtext("name"): item.findtext("value") or "" for item in ET.parse(path).getroot()}  # noqa: S314 - the administrator's own file
    except (OSError, ET.ParseError):
        return None
    first = found.get("yarn.resourcemanager.ha.rm-ids", "").split(",")[0].strip()
    end = f".{first}" if first else ""
    secure = found.get("yarn.http.policy") == "HTTPS_ONLY"
    name, scheme, port = (f"{_WEB}.https.address", "https", 8090) if secure else (f"{_WEB}.address", "http", 8088)
    address = found.get(f"{name}{end}") or found.get(name)
    if not address and (
        host := found.get(f"yarn.resourcemanager.hostname{end}") or found.get("yarn.resourcemanager.hostname")
    ):
        address = f"{host}:{port}"
    return f"{scheme}://{address}" if address and "${" not in address else None
