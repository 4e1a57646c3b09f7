"""Resolves configured passwords with this process's environment and files (blocking, only at startup)."""

import os

from auth.secrets import ResolvedPassword, resolve_password
from policy.files.regular import read_start


def resolve_configured(configured: str, *, is_literal_prefix: bool) -> ResolvedPassword:
    """Does the same as `auth.secrets.resolve_password`, with the real environment and files. Errors: PasswordError."""
    return resolve_password(
        configured,
        is_literal_prefix=is_literal_prefix,
        environment=os.environ.get,
        read_start=read_start,
    )
