"""Converts audit events to OCSF 1.3: one JSON object each, for a SIEM that reads it. DataFrame -> DataFrame.

docs/audit.md has the mapping. Facts without an OCSF member are under `unmapped`, by our names. An event only has
members that its OCSF class knows, and has all that the class requires.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from spark.transforms.events import MOST, TIME_FORMAT, requests

VERSION: Final = "1.3.0"
PRODUCT: Final = "Palisade Router"
AUTHENTICATION, AUTHORIZE_SESSION, NETWORK_ACTIVITY, API_ACTIVITY = 3002, 3003, 4001, 6003
_CLASSES: Final = {
    "sasl": AUTHENTICATION,
    "open": AUTHENTICATION,
    "begin": AUTHORIZE_SESSION,
    "attach": AUTHORIZE_SESSION,
    "transfer": AUTHORIZE_SESSION,
    "management": API_ACTIVITY,
    "policy": API_ACTIVITY,
}
# Activities: of Authentication; of Network Activity, allowed and denied; of API Activity.
_LOGON: Final = 1
_OPEN, _REFUSE = 1, 5
_OPERATIONS: Final = {"CREATE": 1, "READ": 2, "UPDATE": 3, "DELETE": 4}
_UNKNOWN, _OTHER = 0, 99
_SUCCESS, _FAILURE = 1, 2
_LOW, _INFORMATIONAL = 2, 1
_NETWORK_LOGON: Final = 3
_INBOUND: Final = 1
_PERSON: Final = 1  # user.type_id User
_MOST_PORT: Final = 65535
# The mechanisms that OCSF knows: its number and name for each. All others are 99 Other, by their own names.
_PROTOCOLS: Final = {
    "DIGEST-MD5": (3, "Digest"),
    "GSSAPI": (2, "Kerberos"),
    "OAUTHBEARER": (6, "OAUTH 2.0"),
    "XOAUTH2": (6, "OAUTH 2.0"),
}
# OCSF's ip_t has a pattern. Attack: in a forged line `remote_host` can have any digits and dots, which our schema
# permits.
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_SHORTENED: Final = rf"(?=.*::)(?!.*::.*::)(?!.*:::)(?!:[^:])(?!.*[^:]:\z)(?:(?:{_GROUP})?:){{2,7}}(?:{_GROUP})?"
IP: Final = rf"\A(?:{_IPV4}|(?i:::ffff:){_IPV4}|(?:{_GROUP}:){{7}}{_GROUP}|{_SHORTENED})\z"
_UNMAPPED: Final = (
    *("start", "sequence", "connection", "connection_name", "listener", "stage", "decision", "reason", "rule", "user"),
    *("mechanism", "is_encrypted", "remote_host", "requested_vhost", "vhost", "group", "granted", "groups", "asked"),
    *("user_id", "direction", "address", "link_name", "usage", "limit", "ruleset_digest", "redecision", "condition"),
    *("truncated", "attempts", "folded", "management"),
)


def ocsf(events: DataFrame) -> DataFrame:
    """Returns event_id, value (string): the JSON text.

    Leaves out a candidate policy's decisions and the log's own events.
    """
    found = events.where(F.col("decision").isin("allow", "deny") & (F.col("stage") != "audit"))
    class_uid = _looked_up("stage", _CLASSES, F.lit(NETWORK_ACTIVITY))
    classed = found.withColumn("class_uid", class_uid)
    numbered = classed.withColumn("activity_id", _activity())
    is_other = F.col("activity_id") == _OTHER
    whole = F.struct(
        F.col("class_uid"),
        F.floor(F.col("class_uid") / 1000).cast("int").alias("category_uid"),
        F.col("activity_id"),
        F.when(is_other, F.coalesce(_operation(), F.col("stage"))).alias("activity_name"),
        (F.col("class_uid") * 100 + F.col("activity_id")).alias("type_uid"),
        F.when(_is_allowed(), F.lit(_INFORMATIONAL)).otherwise(F.lit(_LOW)).alias("severity_id"),
        F.when(_is_allowed(), F.lit(_SUCCESS)).otherwise(F.lit(_FAILURE)).alias("status_id"),
        F.col("reason").alias("status_code"),
        F.col("detail").alias("status_detail"),
        F.concat_ws(": ", "reason", F.nullif("detail", F.lit(""))).alias("message"),
        F.unix_millis("time").alias("time"),
        _folded_time("first").alias("start_time"),
        _folded_time("last").alias("end_time"),
        requests().alias("count"),
        _metadata().alias("metadata"),
        *_of_a_peer(),
        *_of_a_login(),
        *_of_a_network(),
        *_of_an_api(),
        F.struct(*_UNMAPPED).alias("unmapped"),
    )
    return numbered.select("event_id", F.to_json(whole).alias("value"))


def _activity() -> Column:
    network = F.when(_is_allowed(), F.lit(_OPEN)).otherwise(F.lit(_REFUSE))
    api = _looked_up("management.operation", _OPERATIONS, F.lit(_OTHER))
    # A requested privilege is not one assigned to a login: no activity of Authorize Session fits.
    return (
        F.when(_is(AUTHENTICATION), F.lit(_LOGON))
        .when(_is(NETWORK_ACTIVITY), network)
        .when(_is(API_ACTIVITY), api)
        .otherwise(F.lit(_OTHER))
    )


def _metadata() -> Column:
    return F.struct(
        F.lit(VERSION).alias("version"),
        F.col("event_id").alias("uid"),
        F.col("router").alias("log_provider"),
        F.lit("audit").alias("log_name"),
        F.col("schema_version").cast("string").alias("log_version"),
        F.date_format("time", TIME_FORMAT).alias("original_time"),
        F.col("start").alias("correlation_uid"),
        # OCSF's integer_t has 32 bits in storage (Parquet, SQL); `unmapped` has the full number.
        F.when(F.col("sequence") <= MOST, F.col("sequence")).alias("sequence"),
        F.struct(F.lit(PRODUCT).alias("name"), F.lit("Palisade").alias("vendor_name")).alias("product"),
    )


def _of_a_peer() -> list[Column]:
    """Returns src_endpoint, for API Activity, and dst_endpoint, the router, for Network Activity."""
    text = F.regexp_replace("remote_host", "%.*", "")
    is_ip = text.rlike(IP)
    peer = F.struct(
        F.when(is_ip, text).alias("ip"),
        F.when(~is_ip, F.col("remote_host")).alias("name"),
        _port("connection_name").alias("port"),
    )
    # The author of the files causes a reload: for the router, a user of its own machine.
    nobody = F.when(F.col("stage") == "policy", F.col("router")).otherwise(F.lit("Unknown"))
    source = F.when(F.col("remote_host").isNotNull(), peer).when(_is(API_ACTIVITY), _endpoint(nobody))
    router = F.struct(F.col("router").alias("name"), _port("listener").alias("port"))
    return [source.alias("src_endpoint"), router.alias("dst_endpoint")]


def _of_a_login() -> list[Column]:
    """Returns the members of Authentication and Authorize Session: the user, and how it logged in."""
    is_login = _is(AUTHENTICATION)
    is_mine = is_login | _is(AUTHORIZE_SESSION)
    number = _looked_up("mechanism", {name: uid for name, (uid, _) in _PROTOCOLS.items()}, F.lit(_OTHER))
    caption = _looked_up("mechanism", {name: said for name, (_, said) in _PROTOCOLS.items()}, F.col("mechanism"))
    known_number = F.when(F.col("mechanism").isNull(), F.lit(_UNKNOWN)).otherwise(number)
    vhost = F.coalesce(F.nullif("vhost", F.lit("")), F.nullif("requested_vhost", F.lit("")))
    session = F.struct(F.col("connection").cast("string").alias("uid"), F.lit(True).alias("is_remote"))
    # OCSF requires exactly one of `privileges` and `group`. The request is always known.
    asked_for = F.array(F.concat_ws(":", "stage", "direction"))
    return [
        F.when(is_mine, _user()).alias("user"),
        F.when(is_mine & F.col("connection").isNotNull(), session).alias("session"),
        F.when(_is(AUTHORIZE_SESSION), asked_for).alias("privileges"),
        F.when(is_login, caption).alias("auth_protocol"),
        F.when(is_login, known_number).alias("auth_protocol_id"),
        F.when(is_login, ~F.col("is_encrypted")).alias("is_cleartext"),
        F.when(is_login, F.lit(True)).alias("is_remote"),
        F.when(is_login, F.lit(_NETWORK_LOGON)).alias("logon_type_id"),
        F.when(is_login & vhost.isNotNull(), F.struct(vhost.alias("name"))).alias("service"),
    ]


def _of_a_network() -> list[Column]:
    direction = F.when(F.col("listener").isNotNull(), F.lit(_INBOUND)).otherwise(F.lit(_UNKNOWN))
    connection = F.struct(F.col("connection").cast("string").alias("uid"), direction.alias("direction_id"))
    return [F.when(_is(NETWORK_ACTIVITY), connection).alias("connection_info")]


def _of_an_api() -> list[Column]:
    """Returns who changed what: a user by management; for a reload the router, which read its files."""
    actor = F.struct(
        F.when((F.col("stage") == "management") | F.col("user").isNotNull(), _user()).alias("user"),
        F.when((F.col("stage") == "policy") & F.col("user").isNull(), F.lit(PRODUCT)).alias("app_name"),
    )
    answer = F.struct(F.col("management.status").alias("code"))
    call = F.struct(
        F.coalesce(_operation(), F.col("stage")).alias("operation"),
        F.when(F.col("management").isNotNull(), answer).alias("response"),
    )
    names = {
        "name": F.nullif("management.entity_name", F.lit("")),
        "uid": F.nullif("management.entity_identity", F.lit("")),
    }
    thing = F.struct(
        *(column.alias(name) for name, column in names.items()), F.col("management.entity_type").alias("type")
    )
    is_named = F.coalesce(*names.values()).isNotNull()
    return [
        F.when(_is(API_ACTIVITY), actor).alias("actor"),
        F.when(_is(API_ACTIVITY), call).alias("api"),
        F.when(_is(API_ACTIVITY) & is_named, F.array(thing)).alias("resources"),
    ]


def _user() -> Column:
    """Returns a user, even if none is known, since OCSF requires one. `type_id` marks a real user named Unknown."""
    claimed = F.filter(F.from_json("groups", ArrayType(StringType())), lambda group: group.isNotNull() & (group != ""))
    selected = F.filter(F.array("group"), lambda group: group.isNotNull() & (group != ""))
    groups = F.array_distinct(F.concat(selected, F.coalesce(claimed, F.array().cast("array<string>"))))
    is_known = F.coalesce(F.col("user") != "", F.lit(False))
    return F.struct(
        F.when(is_known, F.col("user")).otherwise(F.lit("Unknown")).alias("name"),
        F.when(is_known, F.lit(_PERSON)).otherwise(F.lit(_UNKNOWN)).alias("type_id"),
        F.when(F.size(groups) > 0, F.transform(groups, lambda group: F.struct(group.alias("name")))).alias("groups"),
    )


def _operation() -> Column:
    return F.nullif("management.operation", F.lit(""))


def _endpoint(name: Column) -> Column:
    """Returns an endpoint with only a name, in the type of a peer."""
    none = F.lit(None)
    return F.struct(none.cast("string").alias("ip"), name.alias("name"), none.cast("int").alias("port"))


def _port(name: str) -> Column:
    port = F.regexp_extract(name, r":(\d{1,5})\z", 1).try_cast("int")
    return F.when(port <= _MOST_PORT, port)


def _folded_time(name: str) -> Column:
    return F.unix_millis(F.try_to_timestamp(f"folded.{name}", F.lit(TIME_FORMAT)))


def _is_allowed() -> Column:
    return F.col("decision") == "allow"


def _is(class_uid: int) -> Column:
    return F.col("class_uid") == class_uid


def _looked_up(name: str, found: Mapping[str, int | str], otherwise: Column) -> Column:
    """Returns the value in a mapping for a member's text."""
    column = otherwise
    for text, value in found.items():
        column = F.when(F.col(name) == text, F.lit(value)).otherwise(column)
    return column
