"""
Predicts what a compaction costs, and what readers have of it.

Pure. Bytes are those of the inputs' stripes; recoding is assumed to write as much as it reads. Seconds are processor
time from measured rates; they serve to compare compactions with one another.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from compactor.planning.document import Action, Cut, FormatSpec, OutputDir, Prediction, Segment
from compactor.planning.insert_only.joins import SMALL_PARTS
from compactor.planning.segments import SMALL_STRIPES

COPY_BYTES_PER_SECOND = 1.2e9
RECODE_BYTES_PER_SECOND = 12e6
CUT_BYTES_PER_SECOND = 25e6
PROBE_BYTES_PER_SECOND = 400e6
KEY_SHARE = 0.03
"""Share of a stripe's bytes in its key columns, the only ones that a probe reads."""
_ONLY_SMALL: Final = frozenset({SMALL_STRIPES, SMALL_PARTS})

StripeSizes = Mapping[tuple[str, int], int]
"""What a reader of a stripe or row group handles, in bytes: by file and number."""


def predict(
    outputs: Sequence[OutputDir], output: FormatSpec, inputs: int, stripes: StripeSizes, delete_bytes: int
) -> Prediction:
    """
    Sum up the cost of a plan.

    Args:
        inputs: files that readers open before.
        stripes: of all files with segments.
        delete_bytes: stored bytes of the delete files that are read.
    """
    copied = sum(copy.bytes for one in outputs for copy in one.copies)
    segments = [segment for one in outputs for segment in one.segments]
    copied += _bytes(segment for segment in segments if segment.action is Action.COPY)
    probed = _bytes(segment for segment in segments if segment.action is Action.PROBE)
    cut = _bytes(segment for segment in segments if is_cut(segment))
    recoded = _bytes(segment for segment in segments if segment.action is Action.RECODE) - cut
    seconds = (
        (copied + probed) / COPY_BYTES_PER_SECOND
        + (recoded + delete_bytes) / RECODE_BYTES_PER_SECOND
        + cut / CUT_BYTES_PER_SECOND
        + probed / PROBE_BYTES_PER_SECOND
    )
    files = [bucket.segments for one in outputs for bucket in one.buckets]
    files += [join.segments for one in outputs for join in one.joins]
    return Prediction(
        read=copied + recoded + cut + round(probed * (1 + KEY_SHARE)) + delete_bytes,
        copied=copied,
        probed=probed,
        recoded=recoded,
        written=copied + probed + recoded + cut,
        seconds=round(seconds, 3),
        cut=cut,
        joined=_bytes(segment for segment in segments if only_small(segment)),
        files_before=inputs,
        files_after=len(files) + sum(len(one.copies) for one in outputs),
        stripes_before=sum(len(segment.stripes) for segment in segments),
        stripes_after=sum(_stripes_after(file, output, stripes) for file in files),
    )


def is_cut(segment: Segment) -> bool:
    """Whether rows are surely cut out of its stripes; a probed stripe may be copied."""
    return segment.action is Action.RECODE and segment.cut is Cut.YES


def only_small(segment: Segment) -> bool:
    """Whether it is encoded anew only because its stripes or row groups are small."""
    return segment.action is Action.RECODE and segment.reason in _ONLY_SMALL


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.bytes for segment in segments)


def _stripes_after(segments: Sequence[Segment], output: FormatSpec, stripes: StripeSizes) -> int:
    """About the stripes of one output file, as if no row went."""
    found = 0
    for chunk, together in groupby(segments, lambda segment: segment.chunk):
        some = list(together)
        kept = [segment for segment in some if chunk < 0 or segment.action is Action.PROBE or is_cut(segment)]
        found += sum(len(segment.stripes) for segment in kept)
        found += _encoded([segment for segment in some if segment not in kept], output, stripes)
    return found


def _encoded(segments: Sequence[Segment], output: FormatSpec, stripes: StripeSizes) -> int:
    """About the stripes that the rows of some segments fill."""
    if not segments:
        return 0
    if (most := output.stripe_rows) is not None:
        return max(1, -(-sum(segment.rows for segment in segments) // most))
    size = sum(stripes[segment.path, number] for segment in segments for number in segment.stripes)
    return max(1, -(-size // output.stripe_bytes))
