"""`qdpolicy convert` writes policies in another form, and checks that they mean the same."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from policy.analysis.conversion import (
    Converted,
    changed_frames,
    changed_meaning,
    compatible,
    extended,
    opaque_addresses,
    plain,
)
from policy.analysis.effort import TooComplexError
from policy.analysis.outlines import Written, outline, rulesets_to_compare
from policy.attributes import Path as Place
from policy.attributes import SourceLocation
from policy.cli.collector import without_collector
from policy.cli.diff import change_lines
from policy.cli.files import written
from policy.cli.progress import Progress, progress
from policy.cli.sources import (
    CLEAN,
    FINDINGS,
    UNREADABLE,
    WRONG_USE,
    Loaded,
    files_of,
    load_files,
    print_lines,
    refusal,
)
from policy.files.conf_layout import NotWritableError, vhost_section
from policy.files.layout import Before, Comments, comments_in, laid_out
from policy.files.loader import PolicyFileError
from policy.files.sections import Section
from policy.files.validation import load_sections
from policy.printing import printable
from policy.ruleset import PolicyError

DESCRIPTION = """\
Write vhosts in another form: policy files (JSON) or vhost sections of a configuration; understood by qdrouterd 1.20 as
well, or with the extensions of this router.

The outcome is read again and compared with what it was made of, exactly. When it does not mean the same nothing is
written, and a request is named that would be decided otherwise.

Comments on lines of their own are kept, before what they stood before; those behind something are not. Of a
configuration that becomes a policy file only the vhosts are taken.
"""
EPILOG = """\
examples:
  qdpolicy convert qdrouterd.conf --to json --output policies/vhosts.json
  qdpolicy convert policies/ --to conf
  qdpolicy convert policies/apps.json --form compatible

exit status:
  0  converted
  1  it cannot be expressed in that form, or would not mean the same; nothing was written
  2  the command line is wrong
  3  a file could not be read or written, or a router would refuse it
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vhost:
    """One vhost of a file.

    comments  by the paths inside the attributes
    """

    section: Section
    comments: Comments
    converted: Converted


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One file with vhosts.

    behind  the comments at its end
    """

    name: str
    text: str
    vhosts: tuple[_Vhost, ...]
    behind: tuple[str, ...]

    @property
    def is_configuration(self) -> bool:
        return self.name.endswith(".conf")


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "convert",
        help="write policies in another form that means the same",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="a policy file, a folder of them, or a router's .conf")
    parser.add_argument("--to", choices=("json", "conf"), help="default: as PATH is written")
    parser.add_argument(
        "--form",
        choices=("as-is", "compatible", "extended"),
        default="as-is",
        help="compatible: what qdrouterd 1.20 takes to mean the same; extended: networks and names of today "
        "(default: as-is)",
    )
    parser.add_argument(
        "--narrow",
        action="store_true",
        help="with --form compatible: leave out what cannot be expressed where that only takes something away, "
        "and show it",
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the outcome there")
    parser.set_defaults(run=run)


@without_collector
def run(options: argparse.Namespace) -> int:
    if options.narrow and options.form != "compatible":
        print("qdpolicy convert: --narrow goes with --form compatible", file=sys.stderr)
        return WRONG_USE
    with progress() as watch:
        text, status = _converted(options, watch)
    if text is None:
        return status
    if options.output is not None:
        return written(options.output, text)
    print(text, end="")
    return CLEAN


def _converted(options: argparse.Namespace, watch: Progress) -> tuple[str | None, int]:
    """Returns the result and the exit status. The result is None if it cannot be made."""
    loaded = Loaded()
    load_files(watch("reading files", files_of(options.path, loaded)), loaded)
    if loaded.problems:
        _complain(f"{file}:{problem.line}:{problem.column}: {problem.text}" for file, problem in loaded.problems)
        return None, UNREADABLE
    sections: dict[str | None, list[Section]] = {}
    for entity in loaded.entities:
        sections.setdefault(entity.source.file, []).append(entity)
    files = [_read(name, text, sections.get(name, ()), options) for name, text in loaded.texts.items()]
    to = options.to or ("conf" if any(file.is_configuration for file in files) else "json")
    vhosts = [vhost for file in files for vhost in file.vhosts]
    try:
        _refuse_obstacles(vhosts)
        text = _written(files, to, is_compact=options.form == "compatible")
        policy = {**loaded.policy, "enableVhostPolicy": True}
        _check(vhosts, policy, text, to, is_narrow=options.narrow, watch=partial(watch, "vhosts checked"))
    except _RefusedError as error:
        _complain((*error.lines, "nothing was written"))
        return None, FINDINGS
    except PolicyError as error:
        print_lines(refusal(options.path, error), sys.stderr)
        return None, UNREADABLE
    left = sorted({entity.type for entity in loaded.entities if entity.type != "vhost"})
    if left and to == "json":
        _complain((f"only the vhosts are written, not what else is there: {', '.join(left)}",))
    return text, CLEAN


class _RefusedError(Exception):
    """The conversion is refused.

    lines  each names a value that cannot be written and its place, or the reason
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


def _read(name: str, text: str, sections: Sequence[Section], options: argparse.Namespace) -> _File:
    comments = comments_in(text, name, sections)
    before = _by_element(comments)
    vhosts = []
    for index, section in enumerate(sections):
        if section.type != "vhost":
            continue
        if options.form == "compatible":
            converted = compatible(section.attributes, narrows=options.narrow)
        elif options.form == "extended":
            converted = extended(section.attributes)
        else:
            converted = Converted(attributes=plain(section.attributes))
        vhosts.append(_Vhost(section=section, comments=before.get(index, Comments()), converted=converted))
    return _File(name=name, text=text, vhosts=tuple(vhosts), behind=tuple(comments.behind))


def _by_element(comments: Comments) -> dict[int, Comments]:
    """Returns index of an element -> its comments.

    Comments at the beginning of the file belong to the first element.
    """
    found: dict[int, Comments] = {}
    for path, before in comments.before.items():
        index = path[0] if path else 0
        assert isinstance(index, int)
        inner = path[2:]
        known = found.setdefault(index, Comments()).before.setdefault(inner, Before())
        known.comments += before.comments
        known.has_blank |= before.has_blank
    return found


def _refuse_obstacles(vhosts: Iterable[_Vhost]) -> None:
    obstacles = [
        f"{_place(vhost.section.source, obstacle.path)}: {obstacle.text}"
        for vhost in vhosts
        for obstacle in vhost.converted.obstacles
    ]
    if obstacles:
        raise _RefusedError(*obstacles)


def _written(files: Sequence[_File], to: str, *, is_compact: bool) -> str:
    """Returns the text of the result. Raises _RefusedError."""
    if to == "json":
        return _as_policy_file(files)
    parts: list[str] = []
    for file in files:
        sections: list[tuple[Section, list[str]]] = []
        for vhost in file.vhosts:
            before = vhost.comments.before
            if file.is_configuration:
                # Comments before a section are not moved.
                before = {path: each for path, each in before.items() if path}
            try:
                attributes = vhost.converted.attributes
                lines = vhost_section(attributes, Comments(before), is_compact=is_compact)
            except NotWritableError as error:
                raise _RefusedError(f"{_place(vhost.section.source, error.path)}: {error}") from None
            sections.append((vhost.section, lines))
        if file.is_configuration:
            parts.append(_with_sections(file.text, sections))
        else:
            parts += ["\n".join("\n".join(lines) for _, lines in sections) + "\n"]
            parts += [f"{comment}\n" for comment in file.behind]
    return "".join(parts)


def _as_policy_file(files: Sequence[_File]) -> str:
    comments = Comments()
    attributes: list[Mapping[str, object]] = []
    for file in files:
        waiting, comments.behind = comments.behind, []
        for vhost in file.vhosts:
            index = len(attributes)
            attributes.append(vhost.converted.attributes)
            for path, before in vhost.comments.before.items():
                comments.before[(index, 1, *path) if path else (index,)] = before
            if waiting:
                lead = comments.before.setdefault((index,), Before())
                lead.comments, waiting = waiting + lead.comments, []
        comments.behind = waiting if file.is_configuration else [*waiting, *file.behind]
    return laid_out([["vhost", each] for each in attributes], comments)


def _with_sections(text: str, sections: Sequence[tuple[Section, list[str]]]) -> str:
    """Returns the configuration with these sections replaced by other lines. Sections are in the order of the file."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for section, instead in reversed(sections):
        lines[(section.source.line or 1) - 1 : section.last_line] = instead
    return "\n".join(lines)


def _check(
    vhosts: Sequence[_Vhost],
    policy: Mapping[str, object],
    text: str,
    to: str,
    *,
    is_narrow: bool,
    watch: Callable[[Sequence[Written]], Iterable[Written]],
) -> None:
    """Checks that the result, when read again, means the same as the files.

    Raises _RefusedError; PolicyError for the files.
    """
    # Host names are not looked up: each becomes an address of its own.
    before = outline(
        policy,
        [(vhost.section.attributes, vhost.section.source) for vhost in vhosts],
        resolve=opaque_addresses,
        watch=watch,
    )
    try:
        entities = [entity for entity in load_sections(text, f"outcome.{to}") if entity.type == "vhost"]
        written = [(entity.attributes, entity.source) for entity in entities]
        old, new = rulesets_to_compare(before, outline(policy, written, resolve=opaque_addresses, watch=watch), plain)
        changes = changed_meaning(old, new)
    except (PolicyFileError, PolicyError, TooComplexError) as error:
        raise _RefusedError(f"the outcome cannot be shown to mean the same: {error}") from None
    _complain(change_lines(changes) if changes else ())
    wrong_frames = changed_frames(old, new)
    _complain(f"{group}: another frame size or session window" for group in wrong_frames)
    if wrong_frames or any(change.is_widening or not is_narrow for change in changes):
        raise _RefusedError("the outcome would not mean the same")


def _place(source: SourceLocation, path: Place) -> str:
    return f"{source.file}:{source.line_of(path) or 1}:{source.column_of(path)}"


def _complain(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line), file=sys.stderr)
