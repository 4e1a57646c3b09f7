"""The TLS context that verifies the certificate of an LDAP server. Its files may change."""

import ssl
import threading
from pathlib import Path

from auth.tls import TlsProfile, client_context

_Print = tuple[tuple[int, int, int] | None, ...]


class LdapTls:
    """A context made from files, and made again when they change. Used by several threads."""

    def __init__(self, profile: TlsProfile, *, verifies_hostname: bool) -> None:
        self.verifies_hostname = verifies_hostname
        self._profile = profile
        self._lock = threading.Lock()
        self._made: tuple[_Print, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """Returns the context.

        It always verifies the chain: by caCertFile alone if set, else by the system's authorities.

        Errors  auth.tls.TlsProfileError (a ValueError) while the files cannot be used.
        """
        with self._lock:
            current = self._print()
            if self._made is None or self._made[0] != current:
                context = client_context(self._profile, verify_hostname=False)
                context.check_hostname = self.verifies_hostname
                self._made = (current, context)
            return self._made[1]

    @property
    def files(self) -> tuple[tuple[str, str | None], ...]:
        """Returns the attributes that name files, with their files."""
        profile = self._profile
        return (
            ("caCertFile", profile.ca_cert_file),
            ("certFile", profile.cert_file),
            ("privateKeyFile", profile.private_key_file),
        )

    def _print(self) -> _Print:
        return tuple(_status(path) for _, path in self.files)


def _status(path: str | None) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat() if path else None
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_ctime_ns) if status is not None else None
