"""
What a compaction will cost, before it runs.

Pure. Bytes are those of the inputs' stripes; what recoding writes is taken to be as large as what it reads. Seconds are processor time, from measured rates, and
meant for comparing compactions with one another, not for promising when one ends.
"""

from collections.abc import Iterable

from compactor.planning.document import Action, OutputDir, Prediction

COPY_BYTES_PER_SECOND = 1.2e9
RECODE_BYTES_PER_SECOND = 12e6
PROBE_BYTES_PER_SECOND = 400e6
KEY_SHARE = 0.03
"""Share of a stripe that its key columns take: all a probe reads."""


def predict(outputs: Iterable[OutputDir], delete_bytes: int) -> Prediction:
    """
    Sum up a plan.

    Args:
        delete_bytes: stored bytes of the delete files that are read.
    """
    copied = probed = recoded = 0
    for output in outputs:
        copied += sum(copy.bytes for copy in output.copies)
        for segment in (segment for bucket in output.buckets for segment in bucket.segments):
            match segment.action:
                case Action.COPY:
                    copied += segment.bytes
                case Action.PROBE:
                    probed += segment.bytes
                case Action.RECODE:
                    recoded += segment.bytes
    seconds = (copied + probed) / COPY_BYTES_PER_SECOND + (recoded + delete_bytes) / RECODE_BYTES_PER_SECOND + probed / PROBE_BYTES_PER_SECOND
    read = copied + recoded + round(probed * (1 + KEY_SHARE)) + delete_bytes
    return Prediction(read=read, copied=copied, probed=probed, recoded=recoded, written=copied + probed + recoded, seconds=round(seconds, 3))
