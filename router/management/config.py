"""Loads a configuration: reads, parses, validates, checks across entities, and orders. Applies nothing.

Reads files through two functions that tests replace; everything else is pure, except the random router id. Source:
docs/spec/management.md §1.3, §1.4.
"""

import errno
import os
import secrets
import socket
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policy.configuration.references import WELL_KNOWN_SERVICES
from policy.configuration.schema import Schema
from policy.configuration.validation import ConfiguredEntity, Refuse, Validation
from policy.files.regular import MAX_POLICY_BYTES, folder_names, is_policy_file, read_regular
from policy.files.sections import Section
from router.effects import Log
from router.management.grammar import ConfigError, parse_config

__all__ = [
    "ConfigError",
    "Configuration",
    "ConfiguredEntity",
    "Section",
    "is_policy_file",
    "load_config",
    "parse_config",
]

ROUTER_ID_CHARACTERS = string.ascii_letters + string.digits + "+_"


def _refuse_nothing(_type: str, _attributes: Mapping[str, object]) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The contents of a file, ready to be applied in order.

    entities    in the order of §1.3; always one router, one policy and one log entity per module
    early_logs  to be logged before the file's own log settings take effect
    late_logs   to be logged after that
    passed_over  text and place of each part that is ignored with a warning, as 1.20 does
    """

    path: str
    entities: tuple[ConfiguredEntity, ...]
    early_logs: tuple[Log, ...] = ()
    late_logs: tuple[Log, ...] = ()
    passed_over: tuple[str, ...] = ()

    def of_type(self, short_name: str) -> tuple[ConfiguredEntity, ...]:
        return tuple(each for each in self.entities if each.type == short_name)

    @property
    def router(self) -> Mapping[str, object]:
        return self.of_type("router")[0].attributes

    @property
    def policy(self) -> Mapping[str, object]:
        return self.of_type("policy")[0].attributes


def read_file(path: str) -> str:
    """Returns the text of a policy file. Errors: OSError, UnicodeDecodeError."""
    return _text_of(read_regular(path, MAX_POLICY_BYTES))


def read_main_file(path: str) -> str:
    """Returns the text of the configuration that the command line names; it may be a pipe. Errors: see read_file."""
    return _text_of(read_regular(path, MAX_POLICY_BYTES, may_be_pipe=True))


def _text_of(content: bytes) -> str:
    # Some editors begin a file with a byte order mark, which has no meaning.
    text = content.decode("utf-8-sig")
    # Line breaks as in Python's text files: errors and findings count lines in this way.
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _list_dir(folder: str) -> Sequence[str]:
    """Returns the names of the policy files in a folder. Errors: OSError."""
    return folder_names(folder, is_policy_file)


def load_config(
    path: str,
    schema: Schema,
    *,
    read_text: Callable[[str], str] | None = None,
    list_dir: Callable[[str], Sequence[str]] = _list_dir,
    refuse: Refuse = _refuse_nothing,
) -> Configuration:
    """Returns the configuration in the file `path`, with the vhosts of its policyDir.

    read_text  reads the file and those of policyDir; None: reads as the daemon does
    refuse     says why an entity that the schema admits is still refused

    Errors  ConfigError about the first faulty place in the file; its str() is what the start prints.
    """
    try:
        text = (read_text or read_main_file)(path)
    except OSError as error:
        reason = f"Configuration file could not be opened: {path}: {error.strerror}"
        raise ConfigError(reason, path=path, kind="Not found") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"the file is not UTF-8 text: {error.reason}", path=path, line=line) from None
    if not text:
        raise ConfigError("Configuration file was empty", path=path, kind="Configuration")
    loading = _Loading(path, schema, refuse)
    loading.validation.add(parse_config(text, path=path))
    loading.validation.complete()
    loading.refuse_first()
    loading.add_policy_dir(loading.policy_dir(), read_text or read_file, list_dir)
    return loading.configuration()


def load_policy_dir(
    folder: str,
    schema: Schema,
    *,
    attribute: str = "policyDir",
    read_text: Callable[[str], str] = read_file,
    list_dir: Callable[[str], Sequence[str]] = _list_dir,
) -> Configuration:
    """Returns only the vhosts of a policyDir, for a reload.

    attribute  the attribute of `policy` that names the folder
    Errors  ConfigError; `reason`, `file` and `line` say what is wrong and where.
    """
    loading = _Loading(folder, schema)
    loading.add_policy_dir(folder, read_text, list_dir, attribute=attribute)
    return loading.configuration()


class _Loading:
    """A configuration while it is loaded: a Validation of its files, and the errors that end it."""

    def __init__(self, path: str, schema: Schema, refuse: Refuse = _refuse_nothing) -> None:
        self.path = path
        self.validation = Validation(schema, make_id=_random_id, refuse=refuse, is_service=is_service)

    def configuration(self) -> Configuration:
        found = self.validation
        return Configuration(
            path=self.path,
            entities=found.ordered(),
            early_logs=self.early_logs(),
            late_logs=tuple(Log(module="ROUTER", level="warning", text=each.text) for each in found.left_out),
            passed_over=tuple(f"{each.text} ({each.source.file}:{each.source.line})" for each in found.left_out),
        )

    def early_logs(self) -> tuple[Log, ...]:
        return tuple(Log(module=each.module, level="warning", text=each.text) for each in self.validation.warned)

    def refuse_first(self) -> None:
        """Raises the first fault in the file, if there is one; later faults may be its consequences."""
        if not self.validation.faults:
            return
        first, *others = sorted(self.validation.faults, key=lambda fault: fault.line or sys.maxsize)
        raise ConfigError(
            first.reason,
            path=self.path,
            line=first.line,
            kind=first.kind,
            file=first.file,
            logs=self.early_logs(),
            others=tuple(f"{each.reason} ({each.file}:{each.line})" for each in others),
        )

    def policy_dir(self) -> str:
        return str(next(self.validation.of_type("policy")).attributes["policyDir"])

    def add_policy_dir(
        self,
        folder: str,
        read_text: Callable[[str], str],
        list_dir: Callable[[str], Sequence[str]],
        *,
        attribute: str = "policyDir",
    ) -> None:
        if not folder:
            return
        file = folder
        left = MAX_POLICY_BYTES
        try:
            names = sorted(filter(is_policy_file, list_dir(folder)))
            for name in names:
                file = os.path.join(folder, name)
                text = read_text(file)
                left -= len(text.encode())
                if left < 0:
                    file = folder
                    raise OSError(errno.EFBIG, f"its policy files have more than {MAX_POLICY_BYTES >> 20} MiB together")
                self.validation.add(parse_config(text, path=file), only="vhost")
                self.refuse_first()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            places = next((each.source.places for each in self.validation.of_type("policy")), {})
            line, _ = places.get((attribute,), (None, None))
            raise ConfigError(f"{attribute}: '{file}' cannot be read: {why}", path=self.path, line=line) from None


def is_service(name: str) -> bool:
    """Returns True if this host knows a service of that name."""
    try:
        socket.getservbyname(name, "tcp")
    except (OSError, ValueError):  # ValueError: a name that no file can contain
        return name in WELL_KNOWN_SERVICES
    return True


def _random_id(mode: str) -> str:
    random = "".join(secrets.choice(ROUTER_ID_CHARACTERS) for _ in range(15))
    return f"{mode.capitalize()}_{random}"
