"""Writes the shell completions from the command lines' own definitions.

`python deploy/completion/generate.py` writes `palisade.bash` and `_palisade` (zsh) beside this file. A test fails if
they differ from its output. Commit the output.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent)]

from command_lines import parsers, verbs_of  # noqa: E402

import schemas  # noqa: E402
from router.io.options import CHECK, LONG_OPTIONS, OPTIONS_WITH_VALUE  # noqa: E402

FILES = "FILES"
# Values that are paths, by metavar. Other metavars are not completed.
FILE_METAVARS = frozenset({"PATH", "FILE", "FOLDER", "OLD", "NEW", "CERT", "KEY", "TRUSTED-CA-DB"})
FILE_METAVARS |= {"SSL-PASSWORD-FILE", "SASL-PASSWORD-FILE"}
MECHANISMS = ("PLAIN", "EXTERNAL", "ANONYMOUS")
OPERATIONS = (
    *("query", "create", "read", "update", "delete", "get-types", "get-attributes", "get-operations"),
    *("get-annotations", "get-mgmt-nodes", "get-schema", "get-json-schema", "get-log", "export"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    values  FILES, words to choose from, () for anything, None if it takes no value
    """

    flags: tuple[str, ...]
    help: str
    values: str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program, or one verb of it.

    rest  its other arguments: FILES or words
    """

    name: str
    options: tuple[Option, ...]
    rest: str | tuple[str, ...] = ()
    verbs: "tuple[Command, ...]" = ()


def entity_types() -> tuple[str, ...]:
    prefixes = ("org.", "entity", "configurationEntity", "operationalEntity")
    found = (name for name in schemas.load("management")["entityTypes"] if not name.startswith(prefixes))
    return tuple(sorted(found))


def values_of(action: argparse.Action) -> str | tuple[str, ...] | None:
    if action.nargs == 0:
        return None
    if action.metavar == "ID":
        return ()  # the lint rules: adding one must not change these files
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if "--type" in action.option_strings:
        return entity_types()
    if "--sasl-mechanisms" in action.option_strings or "--mechanism" in action.option_strings:
        return MECHANISMS
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return FILES if metavar in FILE_METAVARS else ()


def command_of(parser: argparse.ArgumentParser, name: str, **more: object) -> Command:
    options = tuple(
        Option(flags=tuple(action.option_strings), help=help_of(action), values=values_of(action))
        for action in parser._actions
        if action.option_strings
    )
    rest = next((values_of(action) for action in parser._actions if not action.option_strings), ()) or ()
    return Command(name=name, options=options, **{"rest": rest, **more})  # type: ignore[arg-type]


def help_of(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%(default)g", str(action.default)).replace("%%", "%").split())


def command(name: str, parser: argparse.ArgumentParser) -> Command:
    verbs = tuple(command_of(verb, word) for word, verb, _ in verbs_of(parser))
    if not verbs:
        return command_of(parser, name, **({"rest": OPERATIONS} if name == "qdmanage" else {}))
    return command_of(parser, name, rest=tuple(verb.name for verb in verbs), verbs=verbs)


def daemon_options() -> Iterator[Option]:
    for letter, long in LONG_OPTIONS.items():
        values = {"c": FILES, "I": FILES, "P": FILES}.get(letter, () if letter in OPTIONS_WITH_VALUE else None)
        yield Option(flags=(f"-{letter}", f"--{long}"), help=long.replace("-", " "), values=values)
    yield Option(flags=(f"--{CHECK}",), help="start nothing, and say what a start would refuse", values=None)


def commands() -> tuple[Command, ...]:
    daemons = (Command(name=name, options=tuple(daemon_options()), rest=FILES) for name in ("qdrouterd", "qdauthd"))
    return (*daemons, *(command(name, parser) for name, parser in parsers().items()))


# bash


def bash(all_commands: Sequence[Command]) -> str:
    words, values, rests, verbs = [], [], [], []
    for command in all_commands:
        if command.verbs:
            verbs.append(command.name)
        for each in (command, *(verb for verb in command.verbs)):
            key = command.name if each is command else f"{command.name} {each.name}"
            flags = " ".join(flag for option in each.options for flag in option.flags)
            words.append(f'        "{key}") echo "{flags}" ;;')
            rest = each.rest if isinstance(each.rest, str) else " ".join(each.rest)
            if rest:
                rests.append(f'        "{key}") echo "{rest}" ;;')
            for option in each.options:
                if option.values is not None:
                    found = option.values if isinstance(option.values, str) else " ".join(option.values)
                    cases = "|".join(f'"{key} {flag}"' for flag in option.flags)
                    values.append(f'        {cases}) echo "{found or "NOTHING"}" ;;')
    names = " ".join(command.name for command in all_commands)
    return BASH.format(
        options="\n".join(words),
        values="\n".join(values),
        rests="\n".join(rests),
        with_verbs="|".join(verbs),
        names=names,
    )


BASH = """\
# Completion of Palisade Router's commands for bash. Written by deploy/completion/generate.py: do not edit.
# Use: source it in ~/.bashrc, or copy it to /etc/bash_completion.d/.

_palisade_options() {{
    case "$1" in
{options}
    esac
}}

# What an option's value may be: words, FILES, or NOTHING that is known. No output: it takes none.
_palisade_values() {{
    case "$1 $2" in
{values}
    esac
}}

_palisade_rest() {{
    case "$1" in
{rests}
    esac
}}

_palisade() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" key="${{COMP_WORDS[0]##*/}}"
    local found word before
    # bash breaks --option=value in three.
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" ]]; then
        prev="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    case "$key" in
        {with_verbs})
            before=""
            for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
                # The value of an option before the verb is no verb.
                if [[ $word != -* && -z "$(_palisade_values "$key" "$before")" ]]; then
                    key="$key $word"
                    break
                fi
                before="$word"
            done
            ;;
    esac
    COMPREPLY=()
    found="$(_palisade_values "$key" "$prev")"
    if [[ -z $found ]]; then
        if [[ $cur == -* ]]; then
            found="$(_palisade_options "$key")"
        else
            found="$(_palisade_rest "$key")"
        fi
    fi
    case "$found" in
        NOTHING) ;;
        FILES)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$found" -- "$cur") ;;
    esac
}}

complete -F _palisade {names}
"""


# zsh


def zsh(all_commands: Sequence[Command]) -> str:
    cases = []
    for command in all_commands:
        if not command.verbs:
            cases.append(f"    {command.name})\n        _arguments {arguments(command, 12)}\n        ;;")
            continue
        verbs = "\n".join(
            f"                    {verb.name}) _arguments {arguments(verb, 24)} ;;" for verb in command.verbs
        )
        names = " ".join(verb.name for verb in command.verbs)
        options = " ".join(map(specification, command.options))
        cases.append(
            f"    {command.name})\n"
            f"        _arguments -C {options} '1:verb:({names})' '*::argument:->verb'\n"
            f"        if [[ $state == verb ]]; then\n            case $words[1] in\n{verbs}\n            esac\n"
            "        fi\n        ;;"
        )
    names = " ".join(command.name for command in all_commands)
    return ZSH.format(names=names, cases="\n".join(cases))


def arguments(command: Command, indent: int) -> str:
    parts = [specification(option) for option in command.options]
    if command.rest:
        parts.append(f"'*:argument:{zsh_values(command.rest)}'")
    return " \\\n".join(["", *(" " * indent + part for part in parts)]).lstrip()


def specification(option: Option) -> str:
    text = option.help.replace("'", "").replace("[", "(").replace("]", ")").replace(":", ",")
    value = "" if option.values is None else f":value:{zsh_values(option.values)}"
    tail = f"'[{text}]{value}'"
    if len(option.flags) == 1:
        return f"{option.flags[0]}{tail}"
    return f"'({' '.join(option.flags)})'{{{','.join(option.flags)}}}{tail}"


def zsh_values(values: str | tuple[str, ...]) -> str:
    if isinstance(values, str):
        return "_files"
    return f"({' '.join(values)})" if values else " "


ZSH = """\
#compdef {names}
# Completion of Palisade Router's commands for zsh. Written by deploy/completion/generate.py: do not edit.
# Use: copy it to a folder of $fpath, such as /usr/share/zsh/site-functions/.

local state
case $service in
{cases}
esac
"""


def outputs() -> dict[str, str]:
    """Returns file name -> its required content."""
    found = commands()
    return {"palisade.bash": bash(found), "_palisade": zsh(found)}


if __name__ == "__main__":
    for name, text in outputs().items():
        (HERE / name).write_text(text)
