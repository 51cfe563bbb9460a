"""
The settings that a user may choose: one YAML file, and `COMPACTOR_…` environment variables on top of it.

Knows names, types, defaults and which combinations make no sense; of the other packages imports only errors. A mistake
is a `SettingsError` of one line that names the key, where it was set and what is allowed. A secret comes from the
environment or from a file of its own, and is never shown.

    initiator:                                      COMPACTOR_INITIATOR__INTERVAL_SECONDS=300
      interval_seconds: 300

`section` holds what all parts have in common. `database`, `roles`, `work`, `stores`, `control` and `zookeeper` hold the
parts by subject, `model` the whole. `load` reads file and environment, and `mistakes` words the errors.
"""

from compactor.settings.database import hide_password
from compactor.settings.load import load_settings
from compactor.settings.model import Settings
from compactor.settings.roles import History, ThresholdSettings
from compactor.settings.work import ReaderSettings
from compactor.settings.zookeeper import ZooKeeper

__all__ = ["History", "ReaderSettings", "Settings", "ThresholdSettings", "ZooKeeper", "hide_password", "load_settings"]
