"""Reading what a plan needs of its inputs."""

import pytest

from compactor.acid.row_id import RowKey, encode
from compactor.engine.inputs import read_tails
from compactor.errors import RefusedError
from compactor.planning.document import FileRole, InputFile
from compactor.reasons import Reason
from compactor.storage.local_fs.driver import LocalStorage
from tests.unit.orc.files import acid_file, insert


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_file_of_another_size_than_listed_is_refused(tmp_path, more):
    """Somebody wrote it anew between the listing and the look: what was decided about it holds no longer."""
    data = acid_file([insert(RowKey(1, encode(0, 0), 0), (1, "x"))])
    (tmp_path / "f").write_bytes(data)
    file = InputFile("f", len(data) + more, 0, FileRole.DELTA, "delta_1_1", 0, 1, 1)
    if not more:
        assert read_tails(LocalStorage(), str(tmp_path), [file])[0].tail.rows == 1
        return
    with pytest.raises(
        RefusedError, match=f"f has {len(data)} bytes now, {len(data) + more} when it was listed"
    ) as refused:
        read_tails(LocalStorage(), str(tmp_path), [file])
    assert refused.value.reason is Reason.INPUT_CHANGED
