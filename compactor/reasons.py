"""
Stable codes: why a partition was picked or skipped, and why a compaction or cleaning was refused or held back.

The values are public: they appear in logs, metrics labels, history messages and `--output json`. Never rename a value;
add a new one.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A stable code; the code that decides also writes the sentence that goes with it."""

    # picked because
    DELTA_COUNT = "delta-count"
    DELTA_RATIO = "delta-ratio"
    ABORTED_COUNT = "aborted-count"
    ABORTED_AGE = "aborted-age"
    SEVERAL_BASES = "several-bases"

    # not picked because
    BELOW_THRESHOLDS = "below-thresholds"
    NOT_ENOUGH = "not-enough-to-compact"
    ALREADY_QUEUED = "already-queued"
    AUTO_COMPACTION_OFF = "auto-compaction-off"
    FAILED_TOO_OFTEN = "failed-too-often"
    NOT_TRANSACTIONAL = "not-transactional"
    ICEBERG_TABLE = "iceberg-table"
    DYNAMIC_PARTITION_ENTRY = "dynamic-partition-entry"
    REPLICATION_PENDING = "replication-pending"
    REPLICATION_SOURCE = "replication-source"
    OPEN_WRITER = "open-writer"
    NO_FIXED_POINT = "would-not-change-anything"
    STRANDED_STREAM = "stranded-stream"

    # refused because
    TABLE_MISSING = "table-missing"
    PARTITION_MISSING = "partition-missing"
    PARTITION_UNSPECIFIED = "partition-unspecified"
    HOST_UNKNOWN = "host-unknown"
    SORTED_TABLE = "sorted-table"
    UNSUPPORTED_KIND = "unsupported-kind"
    UNSUPPORTED_FORMAT = "unsupported-format"
    UNSUPPORTED_STORE = "unsupported-store"
    UNKNOWN_NAME = "unknown-name"
    NESTED_DIRECTORY = "nested-directory"
    SEVERAL_FILES_PER_BUCKET = "several-files-per-bucket"
    WRONG_BUCKET = "wrong-bucket"
    CORRUPT_FILE = "corrupt-file"
    ENCRYPTED_FILE = "encrypted-file"
    UNSUPPORTED_COMPRESSION = "unsupported-compression"
    SCHEMA_MISMATCH = "schema-mismatch"
    DUPLICATE_RANGE = "duplicate-range"
    NOT_ENOUGH_HISTORY = "not-enough-history"
    READERS_DISAGREE = "readers-disagree"
    OPEN_SIDE_FILE = "open-side-file"
    OPEN_FILE = "open-file"
    LIST_BUCKETING = "list-bucketing"
    VERIFICATION_FAILED = "verification-failed"
    INPUT_CHANGED = "input-changed"
    NO_CLEANUP = "no-cleanup"
    AT_WORK = "at-work"
    LOCK_NOT_ACQUIRED = "lock-not-acquired"
    OWNERSHIP_LOST = "ownership-lost"
    DISK_FULL = "disk-full"
    QUOTA_EXCEEDED = "quota-exceeded"
    LIMIT_EXCEEDED = "limit-exceeded"
    BAD_PROPERTY = "bad-property"
    UNSAFE_LOCATION = "unsafe-location"
    OUTSIDE_ROOTS = "outside-roots"
    OVERLAPPING_LOCATION = "overlapping-location"
    NOT_RESTORABLE = "not-restorable"

    # cleaning is held back by
    OPEN_TRANSACTION = "open-transaction"
    HELD_LOCK = "held-lock"
    RETENTION = "retention"
    NOT_YET_COMMITTED = "not-yet-committed"
    COMPACTION_ABORTED = "compaction-aborted"
    EARLIER_ENTRY = "earlier-entry"
    MAY_BE_LISTED = "may-be-listed"
    NOT_OBSERVED = "not-observed"

    # a compaction may not begin now (docs/control.md)
    NOT_INCLUDED = "not-included"
    PAUSED = "paused"
    DRAINED = "drained"
    BLACKOUT = "blackout"
    OUTSIDE_WINDOW = "outside-window"
    JOBS_BUDGET = "jobs-budget"
    BYTES_BUDGET = "bytes-budget"
    CONTROL_UNKNOWN = "control-unknown"

    # no daemon is there to do it
    NO_WORKER = "no-worker"
    NO_CLEANER = "no-cleaner"
    NOT_READY = "not-ready"

    # the metastore
    UNKNOWN_SCHEMA = "unknown-schema"

    # the file system
    LOCATION_MISSING = "location-missing"
    PERMISSION_DENIED = "permission-denied"
