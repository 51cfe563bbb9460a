"""The command line of `spark-submit`, for every kind of cluster."""

import sys
from pathlib import Path

import pytest

from compactor.errors import SettingsError
from compactor.settings import load_settings
from compactor.spark.application.command import SCRIPT, command, conf, environment
from compactor.spark.conf import common_conf
from compactor.spark.resources import Resources
from compactor.spark.submitter import JobName
from tests.compacting import settings

NAME = "edge1-compactor-sales.orders.dt=2024-01-01"
JOB = JobName(NAME, "7.0a1b2c3d", place="/w/t/.compactor-7-0a1b2c3d", user="ann")
ASSIGNMENT = Path("/tmp/x/assignment.json")


def spark(**given):
    return settings(spark={"mode": "submit", **given}).spark


def parts(line):
    """Options by name, Spark properties, and what comes after."""
    options, properties, words = {}, {}, list(line[1:])
    while words and words[0].startswith("--"):
        option, value = words.pop(0), words.pop(0)
        if option == "--conf":
            key, _, value = value.partition("=")
            properties[key] = value
        else:
            options[option] = value
    return options, properties, words


def test_yarn_client():
    """
    The mandated name, the tag by which it is found again, our own Python for the driver; one try only, for we try
    ourselves.
    """
    options, properties, words = parts(command(spark(master="yarn"), JOB, ASSIGNMENT))
    assert options == {"--master": "yarn", "--deploy-mode": "client", "--name": NAME}
    assert properties["spark.yarn.tags"] == "compactor,compactor-7.0a1b2c3d"
    assert properties["spark.yarn.maxAppAttempts"] == "1"
    assert properties["spark.pyspark.driver.python"] == sys.executable
    assert words == [str(SCRIPT), str(ASSIGNMENT)]


def test_yarn_cluster():
    """The driver finds the assignment in its own directory, and both sides use the archive's Python."""
    options, properties, words = parts(
        command(spark(master="yarn", deploy_mode="cluster", archive="hdfs:///apps/c.tar.gz"), JOB, ASSIGNMENT)
    )
    assert options == {"--master": "yarn", "--deploy-mode": "cluster", "--name": NAME, "--files": str(ASSIGNMENT)}
    assert properties["spark.archives"] == "hdfs:///apps/c.tar.gz#environment"
    assert properties["spark.pyspark.python"] == properties["spark.pyspark.driver.python"] == "./environment/bin/python"
    assert words == [str(SCRIPT), "assignment.json"]


def test_standalone():
    """Nothing of YARN's; executors have our interpreter, installed under the same path."""
    options, properties, _ = parts(command(spark(master="spark://m:7077"), JOB, ASSIGNMENT))
    assert options["--master"] == "spark://m:7077"
    assert properties["spark.pyspark.python"] == sys.executable
    assert not [key for key in properties if key.startswith(("spark.yarn", "spark.dynamicAllocation"))]


def test_kubernetes():
    """The same line; labelled by the job's key, and followed until it ends."""
    given = {"spark.kubernetes.container.image": "r/compactor:1", "spark.kubernetes.file.upload.path": "s3a://b/u"}
    options, properties, words = parts(
        command(
            spark(master="k8s://https://h:6443", deploy_mode="cluster", python="/opt/venv/bin/python", conf=given),
            JOB,
            ASSIGNMENT,
        )
    )
    assert options["--master"] == "k8s://https://h:6443"
    assert properties["spark.kubernetes.driver.label.compactor-job"] == JOB.key
    assert properties["spark.kubernetes.container.image"] == "r/compactor:1"
    assert properties["spark.pyspark.python"] == "/opt/venv/bin/python"
    assert words[1] == "assignment.json"


@pytest.mark.parametrize(
    ("pool", "wished", "queue"),
    [
        (None, None, "general"),
        ("etl", None, "root.etl"),
        ("etl", "root.mine", "root.mine"),
        ("unknown", None, "general"),
    ],
)
def test_the_queue_is_the_tables_or_the_pools_or_the_general_one(pool, wished, queue):
    """In this order; a pool that isn't a queue by the settings isn't taken for one."""
    job = JobName(NAME, "1.a", pool, resources=Resources(wished))
    assert (
        conf(spark(master="yarn", queue="general", pool_queues={"etl": "root.etl"}), job)["spark.yarn.queue"] == queue
    )


def test_a_tables_wishes_go_over_the_settings_and_end_dynamic_allocation_where_they_name_a_number():
    """Spark would otherwise take both as a contradiction or ignore the number."""
    job = JobName(
        NAME, "1.a", resources=Resources(conf={"spark.executor.memory": "3g", "spark.executor.instances": "5"})
    )
    found = conf(spark(master="yarn", conf={"spark.executor.memory": "2g"}), job)
    assert (found["spark.executor.memory"], found["spark.executor.instances"]) == ("3g", "5")
    assert not [key for key in found if key.startswith("spark.dynamicAllocation")]


def test_proxy_user_and_kerberos():
    """
    Either as the compaction's user, or logged in by a keytab: spark-submit takes only one of them, and Hadoop is told
    of the keytab by its environment.
    """
    assert parts(command(spark(master="yarn", proxy_user=True), JOB, ASSIGNMENT))[0]["--proxy-user"] == "ann"
    options = parts(command(spark(master="yarn", principal="hive@R", keytab="/k"), JOB, ASSIGNMENT))[0]
    assert (options["--principal"], options["--keytab"]) == ("hive@R", "/k")
    options = parts(command(spark(master="yarn", proxy_user=True, principal="hive@R", keytab="/k"), JOB, ASSIGNMENT))[0]
    assert options["--proxy-user"] == "ann"
    assert not {"--principal", "--keytab"} & set(options)


@pytest.mark.parametrize(
    ("master", "deploy_mode", "variable"),
    [
        ("yarn", "cluster", "spark.yarn.appMasterEnv.HADOOP_USER_NAME"),
        ("k8s://https://h", "cluster", "spark.kubernetes.driverEnv.HADOOP_USER_NAME"),
        ("yarn", "client", None),
        ("spark://m:7077", "client", None),
    ],
)
def test_tasks_reach_hdfs_as_we_would(monkeypatch, master, deploy_mode, variable):
    """
    A container's own user (`yarn`, as a rule) may not write into our staging directories; who we are is told to
    executors, and to a driver in the cluster.
    """
    monkeypatch.setenv("HADOOP_USER_NAME", "hive")
    found = conf(spark(master=master, deploy_mode=deploy_mode), JOB)
    assert {key: value for key, value in found.items() if key.endswith("HADOOP_USER_NAME")} == {
        key: "hive" for key in ("spark.executorEnv.HADOOP_USER_NAME", variable) if key
    }
    proxied = conf(spark(master=master, deploy_mode=deploy_mode, proxy_user=True), JOB)
    assert proxied["spark.executorEnv.HADOOP_USER_NAME"] == "ann"


def test_with_kerberos_nobody_is_named():
    """Whoever the keytab says."""
    found = conf(spark(master="yarn", principal="hive@R", keytab="/k"), JOB)
    assert not [key for key in found if key.endswith("HADOOP_USER_NAME")]


def test_spark_gets_tokens_for_the_store_of_the_compaction():
    """
    It may be another than the default file system, where Spark's own files are; what the settings name is kept.
    Elsewhere than on HDFS there is nothing to get.
    """
    key = "spark.kerberos.access.hadoopFileSystems"
    there = JobName(NAME, "1.a", place="hdfs://ns2/w/t/.compactor-1-a")
    assert conf(spark(master="yarn", principal="hive@R", keytab="/k"), there)[key] == "hdfs://ns2"
    assert conf(spark(master="yarn", conf={key: "hdfs://ns1"}), there)[key] == "hdfs://ns1,hdfs://ns2"
    for place in ("s3://b/w", "/w", "hdfs:///w", None):
        assert key not in conf(spark(master="yarn"), JobName(NAME, "1.a", place=place))


def test_the_application_gets_no_settings_of_ours(tmp_path):
    """There are passwords among them; the key by which it is found again is all it gets."""
    found = environment(
        JOB, tmp_path, {"COMPACTOR_DATABASE__PASSWORD": "s", "PATH": "/bin", "PYSPARK_PYTHON": "/other"}
    )
    assert {key for key in found if key.startswith("COMPACTOR")} == {"COMPACTOR_SPARK_JOB"}
    assert (found["PATH"], "PYSPARK_PYTHON" in found) == ("/bin", False)


def test_the_applications_id_is_logged(tmp_path):
    """Spark's client says it at info, below which all else is silent; options that are set for it already stay."""
    found = environment(JOB, tmp_path, {"SPARK_SUBMIT_OPTS": "-Da=b"})
    log = tmp_path / "log4j2.properties"
    assert found["SPARK_SUBMIT_OPTS"] == f"-Da=b -Dlog4j2.configurationFile={log.as_uri()}"
    said = log.read_text(encoding="utf-8").splitlines()
    assert said[0] == "rootLogger.level = warn"
    assert said[-4:-2] == ["logger.own0.name = org.apache.spark.deploy.yarn.Client", "logger.own0.level = info"]
    assert "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n" in said


def test_executors_of_a_session_on_yarn_go_when_idle():
    """Dynamic allocation without an external shuffle service, down to none."""
    found = common_conf(settings(spark={"master": "yarn"}).spark)
    assert (
        found["spark.dynamicAllocation.enabled"] == found["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    )
    assert found["spark.dynamicAllocation.minExecutors"] == "0"
    assert "spark.dynamicAllocation.maxExecutors" not in found  # the site's own default counts


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mode: session\n  deploy_mode: cluster\n  master: yarn", "needs mode submit"),
        ("mode: submit\n  deploy_mode: cluster\n  master: spark://h:7077", "needs mode submit, and master yarn"),
        ("principal: p", "belong together"),
        ("proxy_user: true", "needs mode submit"),
        ("archive: /a.tar.gz", "is for clusters"),
        ("tracking_url: http://rm", "tracking_url"),
    ],
)
def test_settings_that_contradict_each_other_are_one_line(tmp_path, given, said):
    """Found when they are read, not by the first compaction."""
    config = tmp_path / "c.yaml"
    config.write_text(f"database:\n  url: sqlite:////x/m.db\nspark:\n  {given}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings(config, {})
