"""Reads the SASL configuration that a router's configuration names, by the functions of the daemon's startup.

Files that this account may not read, or that are not on this host, are left to `qdrouterd --check` on the router's
host.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from policy.files.sections import Section
from policy.lint.findings import SaslText


def sasl_text(sections: Iterable[Section], file: str) -> SaslText | None:
    """Returns the contents of the SASL configuration. None if the sections name none.

    file  the configuration with the sections, or "": a relative folder may be next to it
    """
    routers = [each.attributes for each in sections if each.type == "router" and each.is_of_router]
    folder = routers[0].get("saslConfigDir") if routers else None
    name = routers[0].get("saslConfigName", "qdrouterd") if routers else None
    if not isinstance(folder, str) or not folder or not isinstance(name, str) or not name or "/" in name:
        return None
    place = Path(folder) if Path(folder).is_dir() else Path(file).parent / folder
    path = place / f"{name}.conf"
    if not place.is_dir():
        return SaslText(unread=f"{folder} is not on this host")
    if path.exists() and not os.access(path, os.R_OK):
        return SaslText(unread=f"{path} may not be read by this account")
    return _read(str(place), name)


def _read(folder: str, name: str) -> SaslText:
    # Most configurations name none, and importing these libraries takes half the time of a command.
    from auth.verifiers.sasl_config import SaslConfigError, load_sasl_config

    try:
        config = load_sasl_config(folder, name, environment={})
    except SaslConfigError as error:
        return SaslText(fault=str(error))
    users = config.user_file or config.sasldb
    unread = fault = ""
    if users is not None and os.path.exists(users) and not os.access(users, os.R_OK):
        unread = f"{users} may not be read by this account"
    elif users is not None:
        fault = _fault_of_users(users, is_sasldb=config.sasldb is not None)
    return SaslText(
        mechanisms=config.mechanisms,
        has_users=any((users, config.saslauthd, config.database_fault)),
        has_keys=config.keytab is not None,
        unread=unread,
        # An unusable file of users stops every start. An unusable sasldb stops only listeners that need passwords.
        fault=fault if config.user_file else "",
        password_fault=config.database_fault or ("" if config.user_file else fault),
    )


def _fault_of_users(path: str, *, is_sasldb: bool) -> str:
    """Returns why the file of users cannot be used, "" if it can."""
    from auth.verifiers.files import UserFile, UserFileError
    from auth.verifiers.sasldb import SasldbVerifier

    try:
        if is_sasldb:
            SasldbVerifier(path).close()
        else:
            UserFile.load(path)
    except UserFileError as error:
        return str(error)
    return ""
