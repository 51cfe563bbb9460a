"""The site's own Spark: what its spark-defaults.conf says."""

import pytest

from compactor.errors import UnreachableError
from compactor.spark.application.command import conf as conf_of_application
from compactor.spark.application.command import environment
from compactor.spark.conf import common_conf
from compactor.spark.resources import Resources, task_memory
from compactor.spark.session.process import DriverProcess
from compactor.spark.site import classic, overridden, require_no_connect, site_defaults, site_python, spark_home
from compactor.spark.submitter import JobName
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
    pod = settings(spark={"mode": "submit", "deploy_mode": "cluster", "master": "k8s://h"}).spark
    assert "spark.ui.port" not in common_conf(pod)
    site("spark.ui.port 4100")
    assert "spark.ui.port" not in common_conf(settings(spark={"master": master}).spark)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A site's Spark 3.5, with its PySpark; SPARK_HOME names it."""
    for name in ("jars/spark-core_2.12-3.5.7.jar", "python/lib/pyspark.zip", "python/lib/py4j-0.10.9.7-src.zip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


def test_a_sites_spark_comes_with_its_own_pyspark(home, monkeypatch):
    """The JVM understands its own release alone; without SPARK_HOME, or where it names ours, nothing is put first."""
    assert site_python() == [str(home / "python/lib/pyspark.zip"), str(home / "python/lib/py4j-0.10.9.7-src.zip")]
    monkeypatch.delenv("SPARK_HOME")
    assert site_python() == []
    monkeypatch.setenv("SPARK_HOME", str(spark_home()))
    assert site_python() == []


def test_a_sites_spark_without_a_pyspark_of_another_release_is_refused(home):
    """Our PySpark can't call it; both releases are named. One of our own release goes well."""
    (home / "python/lib/pyspark.zip").unlink()
    (home / "python/lib/py4j-0.10.9.7-src.zip").unlink()
    with pytest.raises(
        UnreachableError, match=r"a Spark 3\.5 without PySpark .* the daemon's PySpark is 4\.\d+: unset"
    ):
        site_python()
    (home / "jars/spark-core_2.12-3.5.7.jar").unlink()
    assert site_python() == []


def test_spark_connect_is_refused_by_name(site):
    """In the settings or the site's defaults: no property undoes it."""
    site("")
    require_no_connect({"spark.master": "yarn"})
    for ask in (lambda: classic({"spark.remote": "sc://h"}), lambda: site("spark.remote sc://h") and classic({})):
        with pytest.raises(UnreachableError, match=r"spark\.remote is sc://h: .*Spark Connect"):
            ask()


def test_what_a_session_sets_otherwise_is_told(site):
    """Properties of the site or the settings with their values, and variables by name."""
    site("spark.submit.deployMode cluster\nspark.api.mode classic\n")
    told = overridden({"spark.api.mode": "connect"}, {"PYSPARK_SUBMIT_ARGS": "x", "SPARK_HOME": "/s"})
    assert told == ["spark.submit.deployMode=cluster", "spark.api.mode=connect", "PYSPARK_SUBMIT_ARGS"]
    assert classic({"spark.a": "1"}) == {
        "spark.a": "1",
        "spark.submit.deployMode": "client",
        "spark.api.mode": "classic",
    }


def test_an_application_is_classic_too(site, tmp_path):
    """`--deploy-mode` goes over the site's defaults already."""
    site("spark.api.mode connect")
    spark = settings(spark={"mode": "submit", "conf": {"spark.api.mode": "connect"}}).spark
    assert conf_of_application(spark, JobName("n", "1.a"))["spark.api.mode"] == "classic"
    given = {"SPARK_REMOTE": "sc://h", "PYSPARK_PIN_THREAD": "false"}
    made = environment(JobName("n", "1.a"), tmp_path, given)
    assert ("SPARK_REMOTE" in made, made["PYSPARK_PIN_THREAD"]) == (False, "true")


LISTS = {
    "spark.driver.extraJavaOptions": "-Dhdp.version=3.1.5",
    "spark.kerberos.access.hadoopFileSystems": "hdfs://events",
    "spark.yarn.tags": "etl",
}


@pytest.mark.parametrize("of_settings", [False, True])
def test_what_we_add_to_a_property_leaves_the_sites_there(site, tmp_path, of_settings):
    """
    A Spark of HDP doesn't start without its option. What `spark.conf` sets goes over the site's; of options, the last
    one counts: the site's own log configuration would fill the daemon's log.
    """
    site("\n".join(f"{key} {'lost' if of_settings else value}" for key, value in LISTS.items()))
    section = settings(spark={"master": "yarn", "conf": LISTS if of_settings else {}}).spark
    session = object.__new__(DriverProcess)
    session._spark, session._files, session.key = section, tmp_path, "k"
    application = conf_of_application(section, JobName("n", "1.a", place="hdfs://nn/t"))
    found = {key: [made[key] for made in (session._conf("n"), application) if key in made] for key in LISTS}
    options, stores, tags = found.values()
    assert options[0].split().index("-Dhdp.version=3.1.5") == (2 if of_settings else 0)
    assert stores[-1] == "hdfs://events,hdfs://nn"
    assert tags == ["etl,compactor,compactor-k", "etl,compactor,compactor-1.a"]
