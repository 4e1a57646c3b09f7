"""`${NAME}` in a configuration stands for an environment variable. Pure.

Only names of capital letters, digits and `_` are variables: `${user}` belongs to policy and `routerIds`. `$${NAME}` is
the text `${NAME}`. Comment lines are left as they are.
"""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$(\$?)\{([A-Z_][A-Z0-9_]*)\}")


class ExpansionError(ValueError):
    """The text names the line and the variable, never a value."""


def expand(text: str, environment: Mapping[str, str]) -> str:
    """The configuration with the values of its variables. Errors: ExpansionError."""
    lines = text.split("\n")
    return "\n".join(
        line if line.lstrip().startswith("#") else _expanded(line, number, environment)
        for number, line in enumerate(lines, start=1)
    )


def _expanded(line: str, number: int, environment: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        literal, name = found.groups()
        if literal:
            return found[0][1:]
        if name not in environment:
            raise ExpansionError(f"line {number}: there is no environment variable {name}")
        # Attack: a value with a line break ends its attribute and adds sections, such as a listener without TLS.
        if not environment[name].isprintable():
            raise ExpansionError(f"line {number}: environment variable {name} has a line break or a control character")
        # A quotation mark or a backslash would be an escape, and `#` would begin a comment: the value would be another.
        if any(character in environment[name] for character in '"\\#'):
            raise ExpansionError(f'line {number}: environment variable {name} has one of the characters " \\ #')
        return environment[name]

    return _VARIABLE.sub(value, line)
