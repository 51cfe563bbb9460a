"""
Classes of values of which there may be a hundred thousand.

To make a frozen dataclass takes ten times as long as another, since each field is set through `object.__setattr__`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:

    def value(**options: Any) -> Any:
        """A dataclass that the type checker holds frozen, and nothing at run time; else as with these options."""
        return dataclass(**options | {"frozen": False, "unsafe_hash": True})


__all__ = ["value"]
