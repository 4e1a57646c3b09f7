"""How the router understands the text of an address. Pure. Source: docs/spec/routing.md §3.1."""


def without_authority(text: str) -> str:
    """The address without scheme, authority and one leading separator."""
    if not text.startswith("/"):
        scheme_end = text.find(":/")
        if scheme_end >= 0:
            text = text[scheme_end + 1 :]
    if text.startswith("//"):
        slash = text.find("/", 2)
        return text[slash + 1 :] if slash >= 0 else ""
    return text[1:] if text.startswith("/") else text


def normalise(text: str) -> str:
    """The address without scheme, authority and one leading or trailing separator."""
    text = without_authority(text)
    return text[:-1] if text.endswith(("/", ".")) else text
