"""`qdcerts` makes a private certificate authority, and certificates of routers and clients.

Exit status 0 done, 1 refused or, with `list --days`, a certificate ends soon; 2 wrong usage.
"""

import argparse
import contextlib
import datetime
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from auth.authority import Authority, AuthorityError, hosts_of, key_pem, make_authority, name_of, new_key, pem, sign
from schemas.versions import add_version_option

AUTHORITY: Final = "ca"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_MAX_FILE_BYTES: Final = 1024 * 1024
_EPILOG = """examples:
  qdcerts -f tls ca                                   tls/ca.crt, tls/ca.key
  qdcerts -f tls router front --host router.example.com --host 10.0.0.5
  qdcerts -f tls client anna                          the user of its certificate is anna (uidFormat: n)
  qdcerts -f tls list --days 30                       status 1 where something ends within 30 days
  qdcerts -f tls renew front                          a new key and certificate, with the same hosts
  qdcerts -f tls ca --renew                           a new authority; ca.crt has the old one too, until
  qdcerts -f tls ca --drop-old                        all others are renewed

Routers get tls/ca.crt, and their own .crt and .key. Keep ca.key elsewhere: who has it can log in as anyone.
Nothing that is there is replaced, except by renew, --renew and --drop-old.

exit status: 0; 1 refused, the text on standard error says why; 2 for a wrong command line
"""


class RefusedError(ValueError):
    """The command is refused. The text names the file and the remedy."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="qdcerts",
        description="Make the certificates of a network of routers and of its clients.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version_option(made)
    made.add_argument("-f", "--folder", metavar="FOLDER", type=Path, required=True, help="where the files are")
    encryption_help = "file with the password of the authority's key, which is then encrypted"
    made.add_argument("--ca-password-file", metavar="FILE", type=Path, help=encryption_help)
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    authority = verbs.add_parser("ca", help="make an authority, or renew it")
    authority.add_argument("--name", metavar="TEXT", default="Palisade CA", help="its name; default: %(default)s")
    authority.add_argument("--days", metavar="N", type=_days, default=3650, help="valid so long; default: %(default)s")
    change = authority.add_mutually_exclusive_group()
    renew_help = "make a new one; ca.crt has the certificates of both, so that both are trusted"
    change.add_argument("--renew", action="store_true", help=renew_help)
    change.add_argument("--drop-old", action="store_true", help="take those of old authorities out of ca.crt")
    router = verbs.add_parser("router", help="a certificate of a router, which serves and makes connections")
    router.add_argument("name", metavar="NAME", help="of the files, and in the certificate")
    hosts_help = "a name or address under which it is reached; may be given several times"
    router.add_argument("--host", metavar="HOST", action="append", required=True, help=hosts_help)
    client = verbs.add_parser("client", help="a certificate of a client")
    client.add_argument("name", metavar="NAME", help="of the files, and in the certificate: the user, by uidFormat: n")
    renew = verbs.add_parser("renew", help="a new key and certificate, with the same name and hosts")
    renew.add_argument("name", metavar="NAME", help="of the files")
    for verb in (router, client, renew):
        verb.add_argument("--days", metavar="N", type=_days, default=397, help="valid so long; default: %(default)s")
    listing = verbs.add_parser("list", help="the certificates of the folder, and until when they are valid")
    listing.add_argument("--days", metavar="N", type=_days, default=0, help="status 1 where one ends within N days")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status; raises SystemExit(2) for a wrong command line."""
    given = parser().parse_args(arguments)
    try:
        return _run(given)
    except (RefusedError, AuthorityError) as error:
        print(f"qdcerts: {error}", file=sys.stderr)
    except OSError as error:
        print(f"qdcerts: {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


def _run(given: argparse.Namespace) -> int:
    folder: Path = given.folder
    if given.verb == "list":
        return _list(folder, given.days)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o022:
        # Attack: another user puts a certificate of his own where the router will read ours.
        raise RefusedError(f"{folder}: others may write to it: chmod go-w {folder}")
    password = _password(given.ca_password_file)
    if given.verb == "ca":
        _authority(folder, given, password)
        return 0
    if not _NAME.fullmatch(given.name) or given.name == AUTHORITY:
        raise RefusedError(
            f"'{given.name[:80]}': a name has up to 64 letters, digits, '.', '_', '@', '-', and is not 'ca'"
        )
    authority = _read_authority(folder, password)
    if given.verb == "renew":
        old = _certificates(folder / f"{given.name}.crt")[0]
        name, hosts, is_new = name_of(old), hosts_of(old), False
    else:
        name, hosts, is_new = given.name, tuple(given.host) if given.verb == "router" else (), True
    key = new_key()
    signed = sign(authority, name, key.public_key(), given.days, hosts=hosts)
    files = {folder / f"{given.name}.key": key_pem(key), folder / f"{given.name}.crt": pem(signed)}
    _write(files, is_new=is_new)
    return 0


def _authority(folder: Path, given: argparse.Namespace, password: bytes | None) -> None:
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if given.drop_old:
        _write({certificate: pem(_read_authority(folder, password).certificate)}, is_new=False)
        return
    old = [pem(each) for each in _certificates(certificate)] if given.renew else []
    made = make_authority(given.name, given.days)
    files = {key: key_pem(made.key, password), certificate: b"".join([pem(made.certificate), *old])}
    _write(files, is_new=not given.renew)


def _list(folder: Path, days: int) -> int:
    now = datetime.datetime.now(datetime.UTC)
    status = 0
    paths = sorted(folder.glob("*.crt"))
    if not paths:
        raise RefusedError(f"{folder}: there is no *.crt file in it")
    for path in paths:
        for each in _certificates(path):
            left = (each.not_valid_after_utc - now).days
            hosts = ", ".join(hosts_of(each))
            line = f"{path.name}: {name_of(each)!r}, until {each.not_valid_after_utc:%Y-%m-%d}, {left} days"
            print(f"{line}, for {hosts}" if hosts else line)
            status |= left < days
    return int(status)


def _write(files: dict[Path, bytes], *, is_new: bool) -> None:
    """Writes all files, or none if one of them exists. A key is never readable by other users.

    is_new  refuse existing files; otherwise each file is replaced as a whole
    """
    if is_new and (there := [path for path in files if os.path.lexists(path)]):
        raise RefusedError(f"{there[0]} is there: `renew` and `ca --renew` replace what they have made")
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in files}
    try:
        for path, content in files.items():
            mode = 0o600 if path.suffix == ".key" else 0o644
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(parts[path], flags, mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, part in parts.items():
            if is_new:
                os.link(part, path)  # unlike a rename, it replaces nothing
            else:
                part.replace(path)
            print(path)
    finally:
        _remove(parts.values())


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _read_authority(folder: Path, password: bytes | None) -> Authority:
    path = folder / "ca.key"
    content = _read(path)
    try:
        key = serialization.load_pem_private_key(content, password)
    except TypeError:
        what = "has no password" if password else "is encrypted: give --ca-password-file"
        raise RefusedError(f"{path} {what}") from None
    except ValueError:
        raise RefusedError(f"{path}: no key in PEM, or its password is wrong") from None
    certificate = _certificates(folder / "ca.crt")[0]
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise RefusedError(f"{path}: it is not the key of the first certificate of {folder / 'ca.crt'}")
    return Authority(certificate=certificate, key=key)


def _certificates(path: Path) -> list[x509.Certificate]:
    content = _read(path)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise RefusedError(f"{path}: no certificate in PEM") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except FileNotFoundError:
        hint = ": make the authority first: qdcerts -f FOLDER ca" if path.name.startswith("ca.") else ""
        raise RefusedError(f"{path}: there is no such file{hint}") from None


def _password(path: Path | None) -> bytes | None:
    if path is None:
        return None
    if not (password := _read(path).strip()):
        raise RefusedError(f"{path}: it has no password")
    return password


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= 36500):
        raise argparse.ArgumentTypeError(f"wants a number of days, 1 to 36500, not '{text}'")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
