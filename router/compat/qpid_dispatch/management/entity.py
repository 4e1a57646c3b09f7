"""Entities as their attributes, and how names are spelt. Source: docs/spec/management.md §1.1, §11."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policy.files.conf_text import camel_case

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]")


def camelcase(text: str, capital: bool = False) -> str:
    """`ssl-profile` as `sslProfile`; `capital`: as `SslProfile`."""
    joined = camel_case(text)
    return joined[:1].upper() + joined[1:] if capital else joined


def uncamelcase(text: str, separator: str = "_") -> str:
    """`sslProfile` as `ssl_profile`."""
    return separator.join(word.lower() for word in _WORD.findall(text))


def clean_dict(items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """All that is not None."""
    return {name: value for name, value in {**dict(items), **more}.items() if value is not None}


class EntityBase:
    """Attributes by name: `entity.port`, `entity["port"]` and `entity.attributes` are the same."""

    attributes: dict[str, Any]

    def __init__(self, attributes: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.__dict__["attributes"] = {**(attributes or {}), **more}

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self.attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["attributes"][name]
        except KeyError:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name) or name == "attributes":
            object.__setattr__(self, name, value)
        else:
            self.attributes[name] = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.attributes!r})"
