"""The schema of this router. Source: docs/spec/management.md §7.8, §11."""

import schemas
from policy.configuration.schema import EntityType, Schema


class QdSchema(Schema):
    """`dump()` is what GET-SCHEMA answers, and the types besides that a router must be configured for to speak of."""

    def __init__(self) -> None:
        super().__init__(schemas.load("management"))

    def entity_type(self, name: str) -> EntityType:
        """By short or long name. Errors: ValidationError."""
        return self.type(name)
