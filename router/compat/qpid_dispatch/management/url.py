"""Where a router is. Source: docs/spec/management.md §9.1."""

from router.tools.connection_options import BUS_URL, DEFAULT_BUS, DEFAULT_PORTS


class Url:
    """`amqp[s]://[user[:password]@]host[:port][/path]`; what is left out is filled in."""

    def __init__(self, url: "Url | str | None" = None) -> None:
        """Errors: ValueError."""
        found = BUS_URL.fullmatch(str(url) if url else DEFAULT_BUS)
        scheme = (found["scheme"] or "amqp").lower() if found is not None else ""
        if found is None or scheme not in DEFAULT_PORTS:
            # Not the URL itself: it may hold a password.
            raise ValueError("a URL is host, host:port or amqp[s]://[user[:password]@]host[:port][/path]")
        self.scheme: str = scheme
        self.username: str | None = found["user"]
        self.password: str | None = found["password"]
        self.host: str = found["ipv6"] or found["host"] or DEFAULT_BUS
        self.port: str = found["port"] or scheme
        self.path: str | None = found["path"]

    def __str__(self) -> str:
        login = ""
        if self.username is not None:
            login = f"{self.username}:{self.password}@" if self.password is not None else f"{self.username}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = f"/{self.path}" if self.path else ""
        return f"{self.scheme}://{login}{host}:{self.port}{path}"

    def __repr__(self) -> str:
        return f"Url({self.scheme}://{self.host}:{self.port})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))
