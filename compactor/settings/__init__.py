"""
What a user may choose: one YAML file, and `COMPACTOR_…` environment variables on top of it.

Knows names, types, defaults and which combinations make no sense; imports nothing of ours but errors. A mistake is a `SettingsError` of one line that names
the key, where it was set and what is allowed. A secret comes from the environment or from a file of its own, and is never shown.

    initiator:                                      COMPACTOR_INITIATOR__INTERVAL_SECONDS=300
      interval_seconds: 300

`section` is what every part has in common; `database`, `roles`, `work`, `stores`, `service` and `zookeeper` hold the parts by whom they concern, `model` the whole, `load`
reads file and environment, `mistakes` words what is wrong with them.
"""

from compactor.settings.database import hide_password
from compactor.settings.load import load_settings
from compactor.settings.model import Settings
from compactor.settings.roles import History, Thresholds
from compactor.settings.zookeeper import ZooKeeper

__all__ = ["History", "Settings", "Thresholds", "ZooKeeper", "hide_password", "load_settings"]
