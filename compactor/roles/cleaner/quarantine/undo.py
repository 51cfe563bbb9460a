"""
Whether a compaction can be undone from quarantine, and by which renames.

Pure: compares a manifest with listings, and asks the rules of readers. First the replaced directories go back, one by
one; beside the result they are obsolete. Then the result goes out of sight, in one rename.

One look at the partition with everything back beside the result stands for every state on the way. If readers read the
same there as before, no directory that went back is read, and what isn't read decides nothing about what is: the best
base stays the best, and the walk over the deltas stands at the same write id when it comes to each other one. So it is
with any part of them.

A result of two directories can't be undone. A delete delta that is left without its delta still hides the replaced
deltas, whose rows are nowhere else by then; a delta that is left without its delete delta hides the replaced delete
deltas, and shows deleted rows. A process may be killed between the two renames, for ever.
Source: docs/operations.md, Restore; docs/layout.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.names import is_hidden, parse_dir
from compactor.acid.snapshot import ReadSnapshot
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.manifest import KeptFiles, QuarantineManifest
from compactor.roles.cleaner.quarantine.sight import beside, files_of, seen, without


@dataclass(frozen=True, slots=True)
class Undo:
    """
    The renames that undo a compaction, in order.

    Args:
        kept: name of the quarantine directory.
        back: what moves out of it, each under its name.
        away: the directory that goes out of sight afterwards.
        covered: the highest write id that the compaction covers.
        before: the partition's listing once everything is back, and the result still there.
        after: its listing once the result is away.
    """

    kept: str
    manifest: QuarantineManifest
    back: tuple[str, ...]
    away: str
    covered: int
    before: Listing
    after: Listing

    def is_before(self, listing: Listing) -> bool:
        """Whether readers find in this listing what is to be there before the result goes: names and lengths."""
        return _visible(listing) == _visible(self.before)


def undo_of(kept: str, manifest: QuarantineManifest, listing: Listing, inside: Listing, sight: ReadSnapshot) -> Undo:
    """
    The renames that undo a compaction; takes time in proportion to the two listings.

    Args:
        kept: name of the quarantine directory.
        listing: of the partition.
        inside: of the quarantine directory.

    Raises:
        RefusedError: NOT_RESTORABLE: it can't be undone exactly, with the reason.
    """
    result, covered = _require_undoable(manifest)
    here, there = files_of(listing), files_of(inside)
    if here.get(result.name) != dict(result.files):
        raise _refused(f"{result.name}, the compaction's result, isn't there as it was: something replaced it since")
    replaced = [one for one in manifest.directories if one.replaced]
    back = tuple(one.name for one in replaced if not _is_in_place(one, here, there))
    _require_nothing_above(listing, covered, sight.layout)
    now = sight.resolve(listing)
    if result.name not in seen(now):
        raise _refused(f"readers don't read {result.name}, the compaction's result, any more")
    if now.excluded:
        raise _refused(f"{now.excluded[0].dir.name} isn't read now, and may be later: {now.excluded[0].reason}")
    if sight.with_originals and now.left_originals and result.name.startswith("base_"):
        raise _refused(f"{now.left_originals[0].path} would be read: no compaction took it in")
    before = beside(listing, inside, back)
    if (read := seen(sight.resolve(before))) != seen(now):
        name = next((name for name in read if name.split("/", 1)[0] in back), "what was replaced")
        raise _refused(f"{name} would be read beside {result.name}")
    after = without(before, [result.name])
    if seen(sight.resolve(after)) != manifest.read_before:
        raise _refused(f"without {result.name} readers would read other directories than before the compaction")
    return Undo(kept, manifest, back, result.name, covered, before, after)


def require_none_aborted(undo: Undo, aborted: Mapping[str, tuple[int, ...]]) -> None:
    """
    Refuse when a directory that would be read again may hold rows of a write that counts as aborted now.

    Args:
        aborted: name → aborted write ids.
    """
    for one in undo.manifest.directories:
        if one.replaced and (ids := aborted.get(one.name)):
            raise _refused(f"{one.name} may hold rows of write id {ids[0]}, which was rolled back")


def _require_undoable(manifest: QuarantineManifest) -> tuple[KeptFiles, int]:
    """The compaction's result and its highest write id."""
    if manifest.taken_back:
        raise _refused(f"it holds what a restore took away: compaction {manifest.entry} is undone")
    if not manifest.result or manifest.highest_write_id is None or not manifest.read_before:
        raise _refused("no compaction is known that replaced it: it was rolled back or dropped")
    if len(manifest.result) > 1:
        names = " and ".join(one.name for one in manifest.result)
        raise _refused(
            f"the compaction's result is {names}, and no file system takes both away in one step: "
            "in between, readers would miss rows or see deleted ones"
        )
    if len({one.name for one in manifest.directories}) < len(manifest.directories):
        raise _refused("its manifest names a directory twice")
    for one in manifest.directories:
        if one.replaced and one.aborted:
            raise _refused(f"{one.name} may hold rows of write id {one.aborted[0]}, which was rolled back")
    return manifest.result[0], manifest.highest_write_id


def _is_in_place(one: KeptFiles, here: Mapping[str, Mapping[str, int]], there: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether something replaced is back already, from a restore that was cut off; refuses unless it is as it was."""
    wanted = dict(one.files)
    found = [place for place in (here.get(one.name), there.get(one.name)) if place is not None]
    if found != [wanted]:
        raise _refused(f"{one.name} is missing" if not found else f"{one.name} isn't as it was when it was replaced")
    return one.name in here


def _require_nothing_above(listing: Listing, covered: int, layout: LayoutVersion) -> None:
    for directory in sorted(listing.directories):
        if "/" not in directory and (acid := parse_dir(directory, layout)) and acid.max_write_id > covered:
            raise _refused(f"{directory} was written since: the compaction covers write ids up to {covered}")


def _visible(listing: Listing) -> dict[str, dict[str, int]]:
    return {name: files for name, files in files_of(listing).items() if not is_hidden(name)}


def _refused(why: str) -> RefusedError:
    return RefusedError(Reason.NOT_RESTORABLE, why)
