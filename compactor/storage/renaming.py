"""What drivers have in common whose directories can be renamed in one step: publishing is a rename, and so is taking away."""

from abc import abstractmethod

from compactor.storage.small_files import SmallFiles


class RenamingStorage(SmallFiles):
    """Part of a `Storage`."""

    @property
    def uploads(self) -> None:
        """See `Storage.uploads`."""
        return

    @abstractmethod
    def rename_noreplace(self, source: str, target: str) -> None:
        """See `Storage.rename_noreplace`."""

    @abstractmethod
    def delete_tree(self, location: str) -> None:
        """See `Storage.delete_tree`."""

    def pending(self, location: str) -> tuple[str, ...]:  # noqa: ARG002 - nothing is prepared unseen
        """See `Storage.pending`."""
        return ()

    def withdraw(self, location: str, aside: str) -> bool:
        """See `Storage.withdraw`."""
        try:
            self.rename_noreplace(location, aside)
        except FileNotFoundError:
            return False
        self.delete_tree(aside)
        return True
