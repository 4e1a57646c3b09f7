"""The Spark types follow the schema by themselves (issue 2, part 8: Audit)."""

import json

import pytest

import schemas

pytest.importorskip("pyspark")

from spark.schemas import audit_event, struct_of


def test_every_member_of_the_schema_has_its_field_in_order() -> None:
    assert audit_event().fieldNames() == list(schemas.load("audit_event")["properties"])


def test_types_are_those_of_the_schema() -> None:
    types = {field.name: field.dataType.simpleString() for field in audit_event()}
    assert types["connection"] == "bigint"
    assert types["truncated"] == "boolean"
    assert types["direction"] == "string"
    assert types["rule"] == "struct<vhost:string,group:string,item:string,file:string,line:bigint>"


def test_a_type_spark_would_have_to_guess_is_refused() -> None:
    spec = json.loads('{"properties": {"tags": {"type": ["array", "null"]}}}')
    with pytest.raises(ValueError, match="tags: no Spark type for JSON type array"):
        struct_of(spec)
