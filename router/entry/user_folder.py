"""Users from a folder, as a Secret is mounted: the name of a file is a user, its content the password."""

import os
from collections.abc import Iterator
from pathlib import Path

from auth.credentials import MAX_PASSWORD_BYTES
from auth.secrets import Secret
from auth.verifiers.files import UserFileError, set_user
from auth.verifiers.hashes import Cost, HashError
from policy.files.regular import read_regular

# Each is hashed before the router starts, in a tenth of a second. Stops a folder that is no folder of users from
# holding up the start until the pod is killed. More users belong into a directory (LDAP) or a file of hashes.
MAX_USERS = 200
# Keys of SCRAM are stored beside the hash, so that clients need not send the password.
SCRAM_HASHES = ("SHA-256",)

# ANONYMOUS is for the listener of a health check. Where a listener has authenticatePeer: yes it is never offered.
_SASL = """\
pwcheck_method: auxprop
auxprop_plugin: userfile
userfile_path: {path}
mech_list: EXTERNAL SCRAM-SHA-256 PLAIN ANONYMOUS
"""


class UserFolderError(ValueError):
    """The text names the file and never what is in it."""


def write_users(source: Path, folder: Path, realm: str | None, *, cost: Cost | None = None) -> tuple[Path, int]:
    """Hash the passwords into the file `users` of folder, mode 0600, beside a SASL configuration that names it.

    realm    a user without `@` logs in as `user@realm`; None: by the name of the file alone
    Returns  what `saslConfigDir` has to be, and the number of users
    Errors   UserFolderError
    """
    target = folder / "users"
    target.unlink(missing_ok=True)
    try:
        names = list(_names(source))
        for name in names:
            user = name if realm is None or "@" in name else f"{name}@{realm}"
            set_user(str(target), user, _password(source / name), cost=cost, scram=SCRAM_HASHES, must_exist=False)
    except (UserFileError, HashError) as error:
        raise UserFolderError(str(error)) from None
    except OSError as error:
        raise UserFolderError(f"{error.filename or source}: {error.strerror}") from None
    if not names:
        raise UserFolderError(f"{source}: there is no user in it")
    sasl = folder / "sasl"
    sasl.mkdir(mode=0o700, exist_ok=True)
    (sasl / "qdrouterd.conf").write_text(_SASL.format(path=target))
    return sasl, len(names)


def _names(source: Path) -> Iterator[str]:
    """The users. What begins with a dot is Kubernetes' own: `..data` and the folder that it leads to."""
    names = sorted(name for name in os.listdir(source) if not name.startswith("."))
    if len(names) > MAX_USERS:
        raise UserFolderError(f"{source}: more than {MAX_USERS} users")
    yield from names


def _password(path: Path) -> Secret:
    content = read_regular(str(path), MAX_PASSWORD_BYTES + 2)
    try:
        # Editors and `echo` end the file with a line break, which nobody types.
        text = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UserFolderError(f"{path}: the password is not UTF-8") from None
    if not text.isprintable():
        raise UserFolderError(f"{path}: the password has a line break or a control character")
    if not text:
        raise UserFolderError(f"{path}: the password is empty")
    return Secret(text)
