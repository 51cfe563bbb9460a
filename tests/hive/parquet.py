"""
parquet-mr, of several releases, as a writer of Parquet files and as their reader: one JVM for each release, started
when it is first asked.
"""

from pathlib import Path

from tests.hive.java import Served, built, java

SOURCE = Path(__file__).parent / "parquet_java"
RELEASES = ("1.7.0", "1.8.1", "1.10.1", "1.11.2", "1.12.3", "1.13.1", "1.15.2", "1.16.0", "1.18.1")
OLDEST_WITH_KEYS = "1.12.3"
"""The first that encrypts files."""


def encrypts(release):
    """Whether a release can encrypt files."""
    return RELEASES.index(release) >= RELEASES.index(OLDEST_WITH_KEYS)


class ParquetError(Exception):
    """parquet-mr threw it."""


class ParquetJava(Served):
    """
    One release of parquet-mr.

    Raises:
        UnavailableError: it can't be built here.
    """

    def __init__(self, release):
        keyed = encrypts(release)
        home, classpath = built(SOURCE, release, beside=[SOURCE / "crypto" / "Keys.java"] if keyed else [])
        self._keys = {"parquet.crypto.factory.class": "Keys"} if keyed else {}
        super().__init__([*java(f"{home}:{classpath}", heap="512m"), "Parquet"], ParquetError)

    def write(self, path, schema, rows, *, codec="SNAPPY", seed=1, settings=()):
        """
        Write a file of random rows.

        Args:
            schema: as parquet-mr parses it.
            codec: the name of one of parquet-mr's codecs.
            settings: a mapping of Hadoop's settings, and those of `Parquet.java` and `Keys.java`.

        Raises:
            ParquetError: this release can't.
        """
        settings = dict(settings)
        if "encrypted" in settings:
            settings |= self._keys
        self.ask(_request("write", path, codec, rows, seed, " ".join(schema.split()), settings))

    def rows(self, path):
        """
        A file's rows as lines, in which each value is its bits.

        Raises:
            ParquetError: this release can't read it.
        """
        return self.ask(_request("read", path, self._keys))


def _request(*fields):
    *words, settings = fields
    return "\t".join([*map(str, words), *(f"{key}={value}" for key, value in settings.items())])
