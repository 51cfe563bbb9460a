"""
Carries owner, group, permission and access control list of a directory over to a directory made inside it.

HDFS gives new files the group of their directory and its default ACL, but this process's user as owner and the umask's
permission.
Source: HDFS permissions guide.
"""

from typing import Any, Final

from compactor.errors import CompactorError, RefusedError
from compactor.reasons import Reason
from compactor.storage.hdfs.client import require_package
from compactor.storage.hdfs.failures import explained, java_class

_FILE_MODE: Final = 0o666
_ACTIONS: Final = ("---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx")
_NO_ACLS: Final = frozenset({"AclException", "UnsupportedOperationException", "RpcNoSuchMethodException"})


def carry_over(client: Any, source: str, target: str) -> None:
    """
    Give the directory `target`, and the files directly in it, the attributes of `source`. Where this process isn't the
    superuser, attributes that only the superuser may set stay as they are.

    Raises:
        FileNotFoundError: `source` or `target` doesn't exist.
    """
    with explained("look at", source):
        model = client.get_file_info(source)
    with explained("list", target):
        children = [found for found in client.list_status(target, False) if not found.isdir]
        itself = client.get_file_info(target)
    entries = _entries(client, source)
    for found, path, mode in (
        (itself, target, model.permission),
        *((child, child.path, model.permission & _FILE_MODE) for child in children),
    ):
        if (found.owner, found.group) != (model.owner, model.group):
            _give(
                client,
                path,
                model.owner if found.owner != model.owner else None,
                model.group if found.group != model.group else None,
            )
        if entries:
            own = _list(entries, model.permission, directory=path == target)
            with explained("give an access control list to", path):
                client.set_acl(path, own)
        elif found.permission != mode:
            with explained("give permission to", path):
                client.set_permission(path, mode)


def _give(client: Any, path: str, owner: str | None, group: str | None) -> None:
    try:
        with explained("give an owner to", path):
            client.set_owner(path, owner, group)
    except RefusedError as error:
        if error.reason is not Reason.PERMISSION_DENIED:
            raise
        if owner is not None and group is not None:
            # only the superuser may set the owner; the group may be one of this user's groups
            _give(client, path, None, group)


def _entries(client: Any, path: str) -> list[Any]:
    """The ACL's entries beyond the permission; none where the cluster has ACLs switched off."""
    try:
        with explained("look at", path):
            return list(client.get_acl_status(path).entries)
    except CompactorError as error:
        if error.__cause__ is not None and java_class(error.__cause__) in _NO_ACLS:
            return []
        raise


def _list(entries: list[Any], permission: int, *, directory: bool) -> list[Any]:
    """
    A whole ACL. HDFS keeps the entries of owner, mask and others as the permission. A directory's default entries,
    which are for its future children, are left out for a file.
    """
    entry = require_package().AclEntry
    keep = _ACTIONS if directory else tuple(action[:2] + "-" for action in _ACTIONS)
    access = [item for item in entries if str(item.scope) == "access"]
    named = [entry(str(item.type), "access", keep[_ACTIONS.index(str(item.permissions))], item.name) for item in access]
    owner, group, others = (keep[permission >> shift & 7] for shift in (6, 3, 0))
    whole = [entry("user", "access", owner, None), *named, entry("other", "access", others, None)]
    whole.append(entry("mask" if access else "group", "access", group, None))
    if directory:
        whole += [item for item in entries if str(item.scope) == "default"]
    return whole
