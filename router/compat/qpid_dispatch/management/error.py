"""Statuses of management, as numbers and as exceptions. Source: docs/spec/management.md §7.2, §10.3."""

from typing import Final

from router.management.client import (
    STATUS_TEXTS,
    BadRequestStatus,
    ForbiddenStatus,
    InternalServerErrorStatus,
    ManagementError,
    NotFoundStatus,
    NotImplementedStatus,
    UnauthorizedStatus,
)

__all__ = [
    "BAD_REQUEST",
    "CREATED",
    "FORBIDDEN",
    "INTERNAL_SERVER_ERROR",
    "NOT_FOUND",
    "NOT_IMPLEMENTED",
    "NO_CONTENT",
    "OK",
    "STATUS_TEXT",
    "UNAUTHORIZED",
    "BadRequestStatus",
    "ForbiddenStatus",
    "InternalServerErrorStatus",
    "ManagementError",
    "NotFoundStatus",
    "NotImplementedStatus",
    "UnauthorizedStatus",
]

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
INTERNAL_SERVER_ERROR: Final = 500
NOT_IMPLEMENTED: Final = 501

STATUS_TEXT: Final = STATUS_TEXTS
