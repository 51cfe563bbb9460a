"""
A major compaction of untouched data on an S3 server: bytes between the server and this process, with all requests and
answers, against the bytes of the table.
"""

from urllib.parse import urlsplit

from sqlalchemy import update

from benchmarks import harness, tables
from benchmarks.lab import Lab
from benchmarks.wire import Wire
from compactor.settings.stores import S3
from compactor.storage.registry import configure
from tests.cluster import s3_server

BYTES = 512 << 20
BUCKET = "bench"


def run() -> list[harness.Result]:
    """Measure the bar."""
    with harness.scratch() as folder, s3_server.running(folder) as server, Wire(urlsplit(server.url).port) as wire:
        (folder / "lab").mkdir()
        source = folder / "lab" / "source.orc"
        tables.write_raw(source, BYTES // tables.ROW_BYTES, 1)
        server.bucket(BUCKET)
        with Lab(folder / "lab") as lab:
            lab.warm_up()
            table = lab.table("t", source)
            server.upload_tree(table.location, BUCKET, "t")
            sds = lab.services.database.schema.sds
            here = update(sds).where(sds.c.location.like(f"%{table.location}")).values(location=f"s3a://{BUCKET}/t")
            lab.services.database.write(lambda connection: connection.execute(here))
            lab.allow(f"s3a://{BUCKET}")
            settings = S3(**server.settings | {"endpoint": f"http://127.0.0.1:{wire.port}"})
            lab.services.settings = lab.services.settings.model_copy(update={"s3": settings})
            configure(lab.services.settings)
            wire.reset()
            took = harness.seconds(lambda: lab.compact(table))
            through = wire.bytes
        size = source.stat().st_size
        (written,) = (item for item in server.objects(BUCKET) if item[0].startswith("t/base_") and "bucket_" in item[0])
        if abs(written[1] - size) > size // 100:
            raise RuntimeError(f"{written[0]} has {written[1]} bytes, its source {size}")
    detail = f"{through / 1e6:.2f} MB of {size / 1e6:.0f} MB, requests and answers of all kinds included; {took:.1f} s against moto's server"
    return [harness.at_most("s3_untouched", 100 * through / size, 2, "% of the table", detail)]
