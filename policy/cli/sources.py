"""The files that a verb reads: policy files, router configurations, folders of policy files."""

import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from policy.analysis.outlines import Outline, Written, outline
from policy.attributes import SourceLocation
from policy.files.loader import PolicyFileError
from policy.files.positioned_json import Problem
from policy.files.regular import MAX_POLICY_BYTES, folder_names, is_policy_file, read_regular
from policy.files.sections import CONF_SUFFIX, Section
from policy.files.validation import load_sections
from policy.printing import printable
from policy.ruleset import PolicyError, Ruleset, compile_ruleset

_COMMENT_LINE: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_POLICY: Final = re.compile(r'\s*\[\s*\[\s*"')
_SECTION: Final = re.compile(
    r"^[ \t]*(?:router|listener|connector|ssl-?profile|auth-?service-?plugin|address|link-?route|auto-?link|policy"
    r"|vhost|log)[ \t]*\{",
    re.MULTILINE | re.IGNORECASE,
)
_SASL: Final = re.compile(
    r"^[ \t]*(?:mech_list|pwcheck_method|auxprop_plugin|sasldb_path|userfile_path|saslauthd_path|keytab)[ \t]*:",
    re.MULTILINE,
)
# The characters that are examined to recognise a file.
BEGINNING: Final = 64_000

STDIN = "-"
SASL_TEXT: Final = "this is a configuration of SASL: `qdrouterd --check` reads it with that of its router"
STDIN_NAMES = ("stdin.json", "stdin.conf")
CLEAN, FINDINGS, WRONG_USE, UNREADABLE = 0, 1, 2, 3


@dataclass(slots=True)
class Loaded:
    """The files that were read, and their faults.

    entities  in the order of the files
    texts     file -> its text
    problems  (file, its fault)
    buffers   file -> its text, for files that are open in an editor: used instead of the file on disk
    """

    entities: list[Section] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    problems: list[tuple[str, Problem]] = field(default_factory=list)
    buffers: Mapping[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> Mapping[str, object]:
        """Returns the `policy` section. If there are only policy files, vhost policy counts as enabled."""
        for entity in self.entities:
            if entity.type == "policy" and entity.is_of_router:
                return entity.attributes
        return {} if self.is_configuration else {"enableVhostPolicy": True}

    @property
    def is_configuration(self) -> bool:
        """Returns whether a router's configuration is among the files."""
        return any(entity.is_of_router for entity in self.entities) or any(map(_is_conf, self.texts))

    @property
    def vhosts(self) -> Sequence[tuple[Mapping[str, object], SourceLocation | None]]:
        """Returns the attributes of each vhost, and its place."""
        return [(entity.attributes, entity.source) for entity in self.entities if entity.type == "vhost"]

    @property
    def router_id(self) -> str:
        """Returns the id in the configuration's `router` section; "" if there is no section or no id."""
        sections = (entity for entity in self.entities if entity.type == "router")
        return next((str(each.attributes["id"]) for each in sections if each.attributes.get("id")), "")


def load(path: Path, watch: Callable[[Sequence[Path]], Iterable[Path]] = iter) -> Loaded:
    """Loads a file, or the *.json files of a folder. For a configuration, also loads the files of its policyDir.

    watch  passes the files on, one by one
    """
    loaded = Loaded()
    load_files(watch(files_of(path, loaded)), loaded, are_policy=path.is_dir())
    folder = loaded.policy.get("policyDir")
    if isinstance(folder, str) and folder:
        # The path as the router reads it, or else relative to the configuration.
        place = Path(folder) if Path(folder).is_dir() else path.parent / folder
        if not place.is_dir():
            loaded.problems.append((str(path), cannot_be_read(f"its policyDir '{folder}' is no folder")))
        else:
            load_files(watch(_folder_files(place, loaded)), loaded, are_policy=True)
    return loaded


def files_of(path: Path, loaded: Loaded) -> list[Path]:
    """Returns the file, or the *.json files of the folder. A fault becomes one of the problems."""
    if not path.is_dir():
        return [path]
    count = len(loaded.problems)
    files = _folder_files(path, loaded)
    if not files and len(loaded.problems) == count:
        loaded.problems.append((str(path), cannot_be_read("there is no *.json file in this folder")))
    return files


def _folder_files(folder: Path, loaded: Loaded) -> list[Path]:
    try:
        return [folder / name for name in folder_names(str(folder), is_policy_file)]
    except OSError as error:
        loaded.problems.append((str(folder), cannot_be_read(why_unread(error))))
        return []


def load_files(files: Iterable[Path], loaded: Loaded, *, are_policy: bool = False) -> None:
    """Loads files that a router would read together, each as load_file does.

    are_policy  they are the files of a policyDir
    """
    left = MAX_POLICY_BYTES
    for file in files:
        load_file(file, loaded, is_policy=are_policy)
        left -= len(loaded.texts.get(str(file), "").encode())
        if left < 0:
            text = f"these policy files have more than {MAX_POLICY_BYTES >> 20} MiB together"
            loaded.problems.append((str(file), cannot_be_read(text)))
            return


def load_file(file: Path, loaded: Loaded, *, is_policy: bool = False) -> None:
    """Adds the entities and the text of one file, or its problems. `-` is standard input."""
    name = str(file)
    buffer = loaded.buffers.get(name)
    if name != STDIN and (buffer is not None or file.exists()) and file.suffix not in (".json", ".conf"):
        text = "policy files are JSON and end in .json, configurations end in .conf"
        loaded.problems.append((name, cannot_be_read(text)))
        return
    try:
        text = read_text(file) if buffer is None else buffer
        name = stdin_name(text) if name == STDIN else name
        if name.endswith(CONF_SUFFIX) and is_sasl_configuration(text):
            loaded.problems.append((name, Problem(line=1, column=1, text=SASL_TEXT)))
            return
        loaded.entities += load_sections(text, name, is_policy=is_policy)
        loaded.texts[name] = text
    except PolicyFileError as error:
        loaded.problems += [(name, problem) for problem in error.problems]
    except UnreadableError as error:
        loaded.problems.append((name, cannot_be_read(str(error))))


def _is_conf(name: str) -> bool:
    return name.endswith(CONF_SUFFIX)


def is_ours(text: str, file: str) -> bool:
    """Returns whether it looks like policy or a router's configuration. Folders have JSON files of all kinds."""
    beginning = text[:BEGINNING]
    if file.endswith(CONF_SUFFIX):
        return Path(file).name.startswith("qdrouterd") or _SECTION.search(beginning) is not None
    return file.endswith(".json") and _POLICY.match(_COMMENT_LINE.sub("", beginning)) is not None


def is_sasl_configuration(text: str) -> bool:
    """Returns whether it is a `.conf` file of the SASL library, as saslConfigDir names it.

    Such a file has no sections.
    """
    return _SASL.search(text) is not None and _SECTION.search(text) is None


class UnreadableError(Exception):
    """A file does not exist, may not be read, or is not a text. str() says which."""


def read_text(file: Path) -> str:
    """Returns the text of a file without a byte order mark; `-` is standard input. Raises UnreadableError."""
    try:
        if str(file) == STDIN:
            if sys.stdin is None:
                raise UnreadableError("it is closed")
            content = sys.stdin.buffer.read(MAX_POLICY_BYTES + 1)
            if len(content) > MAX_POLICY_BYTES:
                raise UnreadableError(f"larger than {MAX_POLICY_BYTES >> 20} MiB")
        else:
            content = read_regular(str(file), MAX_POLICY_BYTES)
        text = content.decode("utf-8")
    except OSError as error:
        raise UnreadableError(why_unread(error)) from None
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8, beginning with byte {error.start + 1}") from None
    return text.removeprefix("\ufeff")


def stdin_name(text: str) -> str:
    """Returns a name for standard input: a policy file begins with a bracket, a configuration does not."""
    said = (stripped for line in text.splitlines() if (stripped := line.strip()) and not stripped.startswith("#"))
    return STDIN_NAMES[not next(said, "[").startswith(("[", "{"))]


def why_unread(error: OSError) -> str:
    return error.strerror or "unknown error"


def cannot_be_read(why: str) -> Problem:
    return Problem(line=1, column=1, text=f"cannot be read: {why}")


class UnusableError(Exception):
    """A router would not accept the files as a policy. str() has one printable line for each reason."""


def ruleset_of(path: Path, *, resolves: bool = False) -> Ruleset:
    """Returns the compiled rules in a file or folder. Raises UnusableError.

    resolves  whether host names may be looked up; if not, a name in remoteHosts is an error
    """
    return compiled(path, usable(path), resolves=resolves)


def usable(path: Path, watch: Callable[[Sequence[Path]], Iterable[Path]] = iter) -> Loaded:
    """Loads files as load does. Raises UnusableError if there are problems."""
    loaded = load(path, watch)
    if loaded.problems:
        lines = (f"{file}:{problem.line}:{problem.column}: {problem.text}" for file, problem in loaded.problems)
        raise UnusableError("\n".join(map(printable, lines)))
    return loaded


def compiled(path: Path, loaded: Loaded, *, resolves: bool) -> Ruleset:
    """Returns the rules loaded from `path`. Raises UnusableError."""
    try:
        return compile_ruleset(loaded.policy, loaded.vhosts, resolve=_resolve if resolves else _refuse)
    except PolicyError as error:
        raise UnusableError(refusal(path, error)) from None


def outline_of(
    path: Path, loaded: Loaded, *, resolves: bool, watch: Callable[[Sequence[Written]], Iterable[Written]] = iter
) -> Outline:
    """Checks all vhosts like `compiled`, but compiles none yet. Raises UnusableError."""
    try:
        return outline(loaded.policy, loaded.vhosts, resolve=_resolve if resolves else _refuse, watch=watch)
    except PolicyError as error:
        raise UnusableError(refusal(path, error)) from None


def refusal(path: Path, error: PolicyError) -> str:
    """Returns one printable line: the place, or else the file or folder that was loaded, and the error."""
    return printable(f"{error.file or path}:{error.line or 1}: {error}")


def _resolve(name: str) -> Sequence[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _refuse(name: str) -> Sequence[str]:
    raise OSError("host names are not looked up here: give --resolve, or write the address")


def print_lines(text: str, file: TextIO | None = None) -> None:
    """Prints an error's text, whose lines were made printable separately."""
    print(printable(text, kept="\n"), file=file)
