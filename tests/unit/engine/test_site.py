"""The site's own Spark: what its spark-defaults.conf says."""

import pytest

from compactor.spark.conf import common_conf
from compactor.spark.resources import Resources, task_memory
from compactor.spark.site import site_defaults
from tests.compacting import settings


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Writes the site's file."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return lambda text: (tmp_path / "spark-defaults.conf").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("spark.a 1", "spark.a", "1"),
        ("  spark.a\t =  x y  ", "spark.a", "x y"),
        ("spark.a:1:2", "spark.a", "1:2"),
        ("spark.a==1", "spark.a", "=1"),
        ("spark.a", "spark.a", ""),
        ("# spark.a 1\n! b\n\r\nspark.b=2", "spark.b", "2"),
        ("spark.a 1,\\\n   2\nspark.b 3", "spark.a", "1,2"),
        ("spark.a C:\\\\\nspark.b 3", "spark.a", "C:\\"),
        ("spark.a\\=b c", "spark.a=b", "c"),
        ("spark.a \\u0041\\tb", "spark.a", "A\tb"),
        ("spark.a 1\nspark.a 2", "spark.a", "2"),
    ],
)
def test_a_file_is_read_as_java_reads_it(site, text, key, value):
    """Separators, comments, lines that go on, escapes; the last one counts."""
    site(text)
    assert site_defaults()[key] == value


def test_without_a_file_nothing_is_set(tmp_path, monkeypatch):
    """PySpark brings none along; other programs' keys are none of Spark's."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert site_defaults() == {}
    (tmp_path / "spark-defaults.conf").write_text("hive.a=1", encoding="utf-8")
    assert site_defaults() == {}


def test_the_memory_of_a_task_follows_the_sites_defaults(site):
    """Five tasks share an executor's container where the site says so; `spark.conf` goes over it."""
    site("spark.executor.cores 5\n")
    found = task_memory(settings(spark={"master": "yarn"}), Resources())
    assert (found.bytes, found.limited_by) == ((2 << 30) // 5, "spark.executor.memoryOverhead = 2g for 5 at a time")
    own = settings(spark={"master": "yarn", "conf": {"spark.executor.cores": "1"}})
    assert task_memory(own, Resources()).limited_by == "limits.task_memory_bytes"


@pytest.mark.parametrize(("master", "port"), [("yarn", "0"), ("spark://m:7077", "0"), ("local[2]", None)])
def test_the_web_interface_is_the_sites(site, master, port):
    """On any free port where the site names none; on one machine there is none."""
    site("")
    conf = common_conf(settings(spark={"master": master}).spark)
    assert (conf.get("spark.ui.port"), "spark.ui.enabled" in conf) == (port, port is None)
    site("spark.ui.port 4100")
    assert "spark.ui.port" not in common_conf(settings(spark={"master": master}).spark)
