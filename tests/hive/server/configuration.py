"""What a Hive server of tests is told: `hive-site.xml`, its log, the options of its JVM."""

from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

_OPENED = {
    "java.base": [
        "java.lang",
        "java.lang.ref",
        "java.lang.reflect",
        "java.lang.invoke",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "java.util.regex",
        "java.net",
        "java.nio",
        "java.io",
        "java.time",
        "java.text",
        "java.math",
        "sun.nio.ch",
        "sun.nio.cs",
        "sun.security.action",
        "sun.util.calendar",
        "jdk.internal.ref",
        "jdk.internal.misc",
    ],
    "java.sql": ["java.sql"],
    "java.management": ["sun.management"],
}
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that does little: it starts sooner, and is slow in what it does for long."""
JVM = [
    "-Djava.net.preferIPv4Stack=true",
    "-Duser.timezone=UTC",
    "-Dspring.jdbc.getParameterType.ignore=true",  # with simple queries: else Hive 4.0's Cleaner fails on PostgreSQL with a NULL partition
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"--add-opens={module}/{package}=ALL-UNNAMED" for module, packages in _OPENED.items() for package in packages),
]
_LOG = """status = ERROR
name = hive
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %5p [%t] %c{2}: %m%n
rootLogger.level = LEVEL
rootLogger.appenderRef.console.ref = console
logger.dn.name = DataNucleus
logger.dn.level = ERROR
logger.conf.name = org.apache.hadoop.hive.conf
logger.conf.level = ERROR
"""
_DRIVERS = {
    "postgresql": ("org.postgresql.Driver", "?preferQueryMode=simple", "hive", "hive"),
    "mysql": ("com.mysql.cj.jdbc.Driver", "", "java", "java"),
}
"""By product: Hive's driver, the options of its address, user and password."""
_ALWAYS = {
    "hive.metastore.schema.verification": "true",
    "datanucleus.schema.autoCreateAll": "false",
    "hive.metastore.event.db.notification.api.auth": "false",
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
    "hive.strict.managed.tables": "false",
    "hive.create.as.insert.only": "false",
    "metastore.metadata.transformer.class": " ",  # else Hive 4 makes a plain table external, which can't be migrated
    "hive.metastore.metadata.transformer.class": " ",
    "fs.defaultFS": "file:///",
    "fs.file.impl": "HeldFileSystem",
    "mapreduce.framework.name": "local",
    "mapreduce.local.map.tasks.maximum": "1",
    "mapreduce.client.completion.pollinterval": "20",
    "mapreduce.client.progressmonitor.pollinterval": "20",
    "hive.exec.counters.pull.interval": "20",
    "hive.execution.engine": "mr",
    "hive.support.concurrency": "true",
    "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
    "hive.lock.sleep.between.retries": "1s",
    "hive.lock.numretries": "60",
    "hive.exec.dynamic.partition.mode": "nonstrict",
    "hive.stats.autogather": "false",
    "hive.stats.column.autogather": "false",
    "hive.auto.convert.join": "false",
    "hive.exec.submit.local.task.via.child": "false",
    "hive.exec.submitviachild": "false",
    "hive.fetch.task.conversion": "more",
    "hive.query.results.cache.enabled": "false",
    "hive.notification.event.poll.interval": "0s",
    "hive.compactor.crud.query.based": "false",
    "hive.compactor.initiator.on": "false",
    "metastore.compactor.initiator.on": "false",
    "hive.compactor.cleaner.on": "false",
    "metastore.compactor.cleaner.on": "false",
    "hive.compactor.worker.threads": "0",
    "metastore.compactor.worker.threads": "0",
    "hive.compactor.check.interval": "2s",
    "hive.compactor.cleaner.run.interval": "500ms",
    "hive.compactor.worker.sleep.time": "500ms",
    "hive.compactor.worker.max.sleep.time": "500ms",
    "hive.compactor.delayed.cleanup.enabled": "false",
    "hive.compactor.gather.stats": "false",  # else the ANALYZE of Hive 4's Worker takes back an ALTER TABLE that ran beside it
    "hive.server2.thrift.bind.host": "127.0.0.1",
    "hive.server2.transport.mode": "binary",
    "hive.server2.authentication": "NOSASL",
    "hive.server2.enable.doAs": "false",
    "hive.server2.webui.port": "0",
    "hive.server2.active.passive.ha.enable": "false",
    "hive.server2.materializedviews.registry.impl": "DUMMY",
    "hive.server2.tez.initialize.default.sessions": "false",
    "hive.security.authorization.enabled": "false",
    "hive.security.authorization.manager": "org.apache.hadoop.hive.ql.security.authorization.plugin.sqlstd.SQLStdConfOnlyAuthorizerFactory",
}


def write(
    folder: Path,
    *,
    database: str,
    metastore_port: int,
    server_port: int,
    more: dict[str, str],
    level: str,
) -> Path:
    """The `conf` folder of a server whose state lies in `folder`, on the database with this URL."""
    conf, scratch = folder / "conf", folder / "scratch"
    conf.mkdir(parents=True)
    scratch.mkdir()
    timeout = more.pop("timeout", "300s")
    place = urlsplit(database)
    product = place.scheme
    driver, options, user, password = _DRIVERS[product]
    settings = _ALWAYS | {
        "javax.jdo.option.ConnectionURL": f"jdbc:{product}://{place.hostname}:{place.port}{place.path}{options}",
        "javax.jdo.option.ConnectionDriverName": driver,
        "javax.jdo.option.ConnectionUserName": user,
        "javax.jdo.option.ConnectionPassword": password,
        "hive.metastore.uris": f"thrift://127.0.0.1:{metastore_port}",
        "metastore.thrift.bind.host": "127.0.0.1",
        "hive.server2.thrift.port": str(server_port),
        "hive.txn.timeout": timeout,
        "metastore.txn.timeout": timeout,
        "hive.metastore.warehouse.dir": f"file://{folder}/warehouse",
        "hive.metastore.warehouse.external.dir": f"file://{folder}/external",
        "hadoop.tmp.dir": f"{scratch}/hadoop",
        "mapreduce.cluster.local.dir": f"{scratch}/mapred",
        "mapreduce.jobtracker.staging.root.dir": f"{scratch}/staging",
        "yarn.app.mapreduce.am.staging-dir": f"{scratch}/staging",
        "hive.exec.scratchdir": f"{scratch}/hive",
        "hive.exec.local.scratchdir": f"{scratch}/local",
        "hive.downloaded.resources.dir": f"{scratch}/resources",
        "hive.querylog.location": f"{scratch}/querylog",
        "hive.server2.logging.operation.enabled": "false",
        "hive.jar.directory": f"{scratch}/jars",
        "hive.user.install.directory": f"{scratch}/install",
        **more,
    }
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    (conf / "hive-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]), encoding="utf-8")
    (conf / "hive-log4j2.properties").write_text(_LOG.replace("LEVEL", level), encoding="utf-8")
    (conf / "hive-exec-log4j2.properties").write_text(_LOG.replace("LEVEL", level), encoding="utf-8")
    return conf


def by_queries(folder: Path) -> dict[str, str]:
    """
    Settings under which Hive 4's Worker compacts by queries on Tez, in the JVM of a server whose state lies in `folder`.
    One task at a time: two in one JVM share a function's state, and Hive's check of their order fails.
    """
    return {
        "hive.execution.engine": "tez",
        "hive.compactor.crud.query.based": "true",
        "hive.tez.container.size": "1024",
        "tez.am.resource.memory.mb": "1024",
        "tez.local.mode": "true",
        "tez.local.mode.without.network": "true",
        "tez.ignore.lib.uris": "true",
        "tez.runtime.optimize.local.fetch": "true",
        "tez.staging-dir": f"file://{folder}/scratch/tez",
    }
