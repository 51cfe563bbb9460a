"""
One compaction, step by step: observe, plan, stage, verify, publish; or discard.

Each step takes the value that the step before it returned, and returns another: `AcidState`, `CompactionPlan`,
`Staged`, `Verified`, `Published`. Knows files and Spark; knows nothing of the metastore: directly before publishing,
the caller's `guard` decides whether the compaction may publish.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NewType

from compactor.acid.snapshot import AcidState, resolve
from compactor.engine.full_acid import plan_full_acid, run_full_acid
from compactor.engine.insert_only.jobs import plan_insert_only, run_insert_only
from compactor.engine.publish.choose import way_to_publish
from compactor.engine.request import CompactionRequest
from compactor.engine.results import Checked, OutputFile, Staged, markers_of
from compactor.engine.verify.result import Verified, verify
from compactor.errors import CompactorError, RefusedError, VerificationError
from compactor.log import get_logger
from compactor.planning.document import CompactionPlan, InputFile
from compactor.planning.driver import within_driver
from compactor.planning.insert_only.joins import JoinSizes
from compactor.planning.limits import EVENT_BYTES, SPILLED_BYTES, fitted
from compactor.planning.parts import PartLimits
from compactor.planning.segments import Sizes
from compactor.planning.select import Selection, select
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.spark.resources import driver_memory, task_memory
from compactor.spark.submitter import Submitter
from compactor.storage.base import Room, Storage

_log = get_logger(__name__)
Published = NewType("Published", Verified)
"""A result that readers find now (on 4.x: once the transaction commits)."""


class Compaction:
    """
    One attempt at one queue entry.

    Args:
        submitter: runs the tasks.
        step: called with the name of a finished step (`worker.staged`; the caller reports all other steps).
    """

    def __init__(
        self,
        request: CompactionRequest,
        storage: Storage,
        submitter: Submitter,
        settings: Settings,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.request = request
        self.storage = storage
        self._submitter = submitter
        self._settings = settings
        self._step = step
        self._staging, self._publisher = way_to_publish(storage, request)
        self._known: frozenset[str] = frozenset()
        self.job = request.job(self._staging.root)
        self.may_have_staged = False
        """
        Whether files of this attempt may lie in the store, or a job of it may run: only then `discard` has work to do.
        """

    @property
    def was_discarded(self) -> bool:
        """Whether its staging directory was there, and isn't any more."""
        return self.may_have_staged and not self.storage.exists(self._staging.root)

    @property
    def sizes(self) -> Sizes:
        stripe, memory = int(self._settings.recode.target_stripe_bytes), task_memory(self._settings, self.job.resources)
        return Sizes(
            min_stripe=int(self._settings.splice.min_stripe_bytes),
            chunk=2 * stripe,
            events=max(1, memory.bytes // EVENT_BYTES),
            spilled_events=int(self._settings.limits.task_scratch_bytes) // SPILLED_BYTES,
            events_limited_by=memory.limited_by,
        )

    def observe(self) -> AcidState:
        """
        List the directory and resolve it: all decisions use this one listing.

        Raises:
            RefusedError: nested directories, unknown names, missing history.
        """
        request = self.request
        listing = self.storage.list_tree(request.location)
        self._known = frozenset(listing.directories)
        return resolve(
            listing,
            request.write_ids,
            request.txns,
            request.layout,
            with_originals=self._settings.readers.read_originals(insert_only=request.table.insert_only),
        )

    def plan(self, state: AcidState) -> CompactionPlan:
        """
        Decide for every stripe how it is treated; reads tails and delete events, writes nothing.

        Raises:
            RefusedError: with its reason.
        """
        room = self._room()
        selection = self._select(state, room)
        location = self.request.location
        self._require_closed((*selection.inserts, *selection.deletes, *selection.files))
        if selection.spec.insert_only:
            made = plan_insert_only(self.storage, selection, location, self._join_sizes(room))
        else:
            made = plan_full_acid(
                self.storage,
                selection,
                location,
                sizes=self.sizes,
                stripe_bytes=int(self._settings.recode.target_stripe_bytes),
            )
        driver = driver_memory(self._settings, self.job.resources)
        plan = within_driver(self._fitted(made, room), self.sizes.chunk, driver.bytes, driver.mend)
        for warning in plan.warnings:
            _log.warning("plan.warned", why=warning)
        return plan

    def _require_closed(self, files: Sequence[InputFile]) -> None:
        """Raise RefusedError (OPEN_FILE) when an input may still grow: what is read of it now isn't all of it."""
        if growing := self.storage.open_files(self.request.location, [file.path for file in files]):
            raise RefusedError(
                Reason.OPEN_FILE,
                f"{self.request.entry.entity}: {growing[0]} is still open for writing: it is compacted once it is closed",
            )

    def _select(self, state: AcidState, room: Room) -> Selection:
        request, settings = self.request, self._settings
        free = None if self._links else room.bytes
        by = room.limited_by if free is not None else ""
        limits = PartLimits(
            settings.limits.deltas,
            free,
            f"{by} at {request.location}",
            room.reason if by else Reason.LIMIT_EXCEEDED,
        )
        return select(
            state,
            request.spec,
            request.entry.kind,
            request.layout,
            request.write_ids,
            request.visibility_txn,
            prefer_major=settings.worker.prefer_major,
            limits=limits,
        )

    @property
    def _links(self) -> bool:
        """Whether files are linked, which takes no room."""
        return self.request.table.insert_only and self.storage.links

    def _join_sizes(self, room: Room) -> JoinSizes:
        sizes, settings = self.sizes, self._settings
        return JoinSizes(
            int(settings.insert_only.file_bytes),
            int(settings.recode.target_stripe_bytes),
            sizes.min_stripe,
            room.bytes if self._links else None,
        )

    def _room(self) -> Room:
        """
        The room for the result: what the store has free, at most `limits.scratch_bytes`.

        Raises:
            RefusedError: LOCATION_MISSING.
        """
        try:
            room = self.storage.room(self.request.location)
        except FileNotFoundError:
            raise RefusedError(
                Reason.LOCATION_MISSING, f"{self.request.entry.entity}: there is no directory {self.request.location}"
            ) from None
        most = self._settings.limits.scratch_bytes
        if most is not None and (room.bytes is None or most < room.bytes):
            return replace(room, bytes=int(most), limited_by="limits.scratch_bytes", reason=Reason.LIMIT_EXCEEDED)
        return room

    def _fitted(self, plan: CompactionPlan, room: Room) -> CompactionPlan:
        free = room.bytes
        if free is not None and self._links:
            free += sum(copy.bytes for output in plan.outputs for copy in output.copies)
        return fitted(plan, free, room.names, room.limited_by, room.reason)

    def stage(
        self,
        plan: CompactionPlan,
        progress: Callable[[float], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Staged:
        """
        Write the result into the staging directory.

        Raises:
            CancelledError, RefusedError, RetryableError, UnreachableError: as `Submitter.run`; `discard` then removes
                the staging directory.
        """
        plan = self._fitted(plan, self._room())
        self.may_have_staged = True
        self._staging.make()
        self._step("worker.staged")
        checked: Sequence[Checked] | None
        if plan.insert_only:
            files, checked = run_insert_only(
                plan,
                self._staging.tasks,
                self._submitter,
                self.job,
                verify_values=self._settings.recode.verify_values,
                progress=progress,
                cancelled=cancelled,
            )
        else:
            files, checked = run_full_acid(
                plan,
                self._staging.tasks,
                self._submitter,
                self.job,
                digests=self._settings.recode.verify_values,
                together=self.sizes.chunk,
                progress=progress,
                cancelled=cancelled,
            )
        kept = tuple(file for file in files if file.path)
        empty = tuple(file for file in files if not file.path)
        return Staged(plan, kept, self._assemble(plan, kept), empty, None if checked is None else tuple(checked))

    def _assemble(self, plan: CompactionPlan, files: Sequence[OutputFile]) -> tuple[str, ...]:
        """
        Move the accepted files to their places and add the markers; returns the names of the output directories.

        A minor compaction makes its delta and its delete delta only if they have rows; if both have none, it makes the
        first.
        """
        filled = [output for output in plan.outputs if any(file.directory == output.name for file in files)]
        outputs = filled or [plan.outputs[0]]
        self._staging.make_out([output.name for output in outputs])
        self._staging.complete(files, {output.name: markers_of(plan, output.name) for output in outputs})
        return tuple(output.name for output in outputs)

    def verify(self, staged: Staged, cancelled: Callable[[], bool] = lambda: False) -> Verified:
        """
        Check the staged result against the inputs.

        Raises:
            VerificationError: the first difference, and the name of the evidence directory; nothing was published.
        """
        try:
            verified = verify(staged, self._staging, self.storage, self._submitter, self.job, cancelled)
        except VerificationError as error:
            raise VerificationError(f"{error.message}; kept aside: {self._keep_evidence()}") from error
        self._submitter.end(self.job)
        return verified

    def _keep_evidence(self) -> str:
        try:
            return self._staging.keep_as_evidence()
        except (CompactorError, OSError) as error:
            return f"nothing ({error})"

    def publish(self, verified: Verified, guard: Callable[[], None]) -> Published:
        """
        Make the result visible; a result that this attempt has published already stays as it is.

        Args:
            guard: raises when this worker doesn't own the entry any more, or the table was replaced by another one;
                called directly before the result appears.

        Raises:
            RefusedError, RivalError, CancelledError, RetryableError, OutcomeUnknownError: as `Publisher.publish`.
        """
        self._publisher.publish(verified, guard, self._known)
        return Published(verified)

    def discard(self) -> None:
        """Remove the staging directory; a late task then finds no place to write to, and a late rename no source."""
        try:
            self._staging.discard()
        finally:
            self._submitter.end(self.job)
