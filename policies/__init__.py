"""Example rulesets and configurations, as they are installed: they work, and `qdpolicy lint` finds nothing in them."""

from importlib import resources
from importlib.resources.abc import Traversable


def path(name: str) -> Traversable:
    """A packaged example, or a folder of them.

    name    relative, with `/` between its parts: "quickstart/policy.json"
    Errors  FileNotFoundError when there is no such example
    """
    found = resources.files(__name__)
    for part in name.split("/"):
        found = found.joinpath(part)
        if part in ("", ".", "..") or not (found.is_dir() or found.is_file()):
            raise FileNotFoundError(f"There is no example {name!r}, such as 'quickstart/policy.json'")
    return found
