"""The SASL configuration file and the offer that follows from it: docs/spec/policy-and-auth.md §7, §8.1."""

from pathlib import Path

import pytest

from auth.mechanisms import Channel
from auth.verifiers.sasl_config import (
    SaslConfig,
    SaslConfigError,
    demands_certificate,
    load_sasl_config,
    offered_mechanisms,
    parse_sasl_config,
    unserved_mechanisms,
    why_unserved,
)

OWN = "pwcheck_method: auxprop\nauxprop_plugin: userfile\nuserfile_path: /etc/users\n"
SHIPPED = "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: /var/lib/users.sasldb\n"
FOREIGN = "pwcheck_method: auxprop\nauxprop_plugin: sql\nsql_select: dummy select\n"


def offer(
    config: SaslConfig, listed: str | None = None, *, authenticate: bool = False, certificate: bool = False
) -> tuple[str, ...]:
    return offered_mechanisms(
        config,
        served=("PLAIN",) if config.user_file is not None else (),
        sasl_mechanisms=listed,
        authenticate_peer=authenticate,
        channel=Channel(has_certificate=certificate),
    )


def test_a_configuration_is_key_value_lines() -> None:
    text = f"# ours\n\n{OWN}mech_list: anonymous plain  EXTERNAL\nkeytab: /k\nsql_select: dummy select\n"
    config = parse_sasl_config(text, "/etc/sasl2/qdrouterd.conf")
    assert config == SaslConfig(mechanisms=("ANONYMOUS", "PLAIN", "EXTERNAL"), user_file="/etc/users", keytab="/k")


def test_a_relative_user_file_lies_beside_the_configuration() -> None:
    config = parse_sasl_config("userfile_path: users", "/etc/palisade/qdrouterd.conf")
    assert config.user_file == "/etc/palisade/users"


@pytest.mark.parametrize(
    ("text", "says"), [("mech_list", r"c\.conf:1: expected key: value"), ("auxprop_plugin: userfile", "userfile_path")]
)
def test_a_wrong_configuration_is_named(text: str, says: str) -> None:
    with pytest.raises(SaslConfigError, match=says):
        parse_sasl_config(text, "c.conf")


# The offer --------------------------------------------------------------------------------------------------------

WITH_USERS = SaslConfig(user_file="/etc/users")
LISTED = SaslConfig(mechanisms=("ANONYMOUS", "DIGEST-MD5", "EXTERNAL", "PLAIN"), user_file="/etc/users")


def test_the_order_is_that_of_mech_list_not_of_the_listener() -> None:
    assert offer(LISTED, "plain EXTERNAL anonymous", certificate=True) == ("ANONYMOUS", "EXTERNAL", "PLAIN")


@pytest.mark.parametrize(
    ("listed", "offered"),
    [
        (None, ("ANONYMOUS", "PLAIN")),
        ("", ("ANONYMOUS", "PLAIN")),
        ("PLAIN", ("PLAIN",)),
        ("Plain", ("PLAIN",)),
        ("GSSAPI", ()),
        ("PLAINX XPLAIN", ()),
        ("DIGEST-MD5", ()),
    ],
)
def test_the_listener_filters_by_whole_words_in_any_case(listed: str | None, offered: tuple[str, ...]) -> None:
    """policy 55"""
    assert offer(LISTED, listed) == offered


def test_anonymous_is_not_offered_where_peers_must_authenticate() -> None:
    """policy 53"""
    assert "ANONYMOUS" not in offer(LISTED, authenticate=True)
    assert offer(LISTED, "ANONYMOUS", authenticate=True) == ()


def test_external_is_offered_only_with_a_verified_certificate() -> None:
    assert "EXTERNAL" not in offer(LISTED, "EXTERNAL PLAIN")
    assert "EXTERNAL" in offer(LISTED, "EXTERNAL PLAIN", certificate=True)


def test_an_authenticator_that_serves_external_makes_it_no_second_offer() -> None:
    """Nor one without a certificate."""
    for certificate, offered in ((True, ("EXTERNAL", "PLAIN", "ANONYMOUS")), (False, ("PLAIN", "ANONYMOUS"))):
        channel = Channel(has_certificate=certificate)
        assert offered == offered_mechanisms(
            SaslConfig(), served=("EXTERNAL", "PLAIN"), sasl_mechanisms=None, authenticate_peer=False, channel=channel
        )


def test_without_a_user_database_no_password_is_asked_for() -> None:
    assert offer(SaslConfig(), certificate=True) == ("EXTERNAL", "ANONYMOUS")
    assert offer(SaslConfig(mechanisms=("PLAIN", "ANONYMOUS"))) == ("ANONYMOUS",)


def test_without_mech_list_everything_is_offered_strongest_first() -> None:
    offered = offer(WITH_USERS, certificate=True)
    assert offered[0] == "EXTERNAL"
    assert offered[-2:] == ("PLAIN", "ANONYMOUS")


def test_a_mechanism_listed_twice_is_offered_once() -> None:
    assert offer(SaslConfig(mechanisms=("ANONYMOUS", "ANONYMOUS"))) == ("ANONYMOUS",)


def test_a_user_database_we_cannot_read_is_refused_with_what_to_do() -> None:
    config = parse_sasl_config(f"{FOREIGN}mech_list: ANONYMOUS DIGEST-MD5 EXTERNAL PLAIN", "/etc/sasl2/qdrouterd.conf")
    for listed in (None, "PLAIN", "digest-md5 external"):
        with pytest.raises(SaslConfigError) as caught:
            offer(config, listed)
        for part in ("/etc/sasl2/qdrouterd.conf", "'sql'", "qdpasswd", "userfile_path"):
            assert part in str(caught.value)


def test_a_user_database_nobody_asks_for_does_no_harm() -> None:
    config = parse_sasl_config(f"{FOREIGN}mech_list: ANONYMOUS DIGEST-MD5 EXTERNAL PLAIN", "q.conf")
    assert offer(config, "ANONYMOUS") == ("ANONYMOUS",)
    assert offer(config, "EXTERNAL", certificate=True) == ("EXTERNAL",)


@pytest.mark.parametrize("method", ["alwaystrue", "pwcheck", "auxprop saslauthd"])
def test_another_way_of_checking_passwords_is_refused(method: str) -> None:
    config = parse_sasl_config(f"pwcheck_method: {method}", "q.conf")
    with pytest.raises(SaslConfigError, match=method):
        offer(config)


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (SHIPPED, SaslConfig(sasldb="/var/lib/users.sasldb")),
        ("auxprop_plugin: sasldb", SaslConfig(sasldb="/etc/sasldb2")),
        ("sasldb_path: mine", SaslConfig(sasldb="/etc/sasl2/mine")),
        ("pwcheck_method: SaslAuthd", SaslConfig(saslauthd="/run/saslauthd/mux")),
        (
            f"{SHIPPED}pwcheck_method: saslauthd\nsaslauthd_path: /s/mux\nmech_list: plain login",
            SaslConfig(mechanisms=("PLAIN", "LOGIN"), saslauthd="/s/mux"),
        ),
    ],
)
def test_databases_of_the_library(text: str, config: SaslConfig) -> None:
    assert parse_sasl_config(text, "/etc/sasl2/q.conf") == config


def test_kerberos_needs_no_users() -> None:
    config = parse_sasl_config(f"{FOREIGN}keytab: k\nmech_list: GSSAPI ANONYMOUS", "/etc/sasl2/q.conf")
    assert config.keytab == "/etc/sasl2/k"
    for listed, offered in ((None, ("GSSAPI", "ANONYMOUS")), ("gssapi", ("GSSAPI",))):
        found = offered_mechanisms(
            config, served=("GSSAPI",), sasl_mechanisms=listed, authenticate_peer=False, channel=Channel()
        )
        assert found == offered


def test_what_of_mech_list_is_not_to_be_had() -> None:
    config = SaslConfig(mechanisms=("ANONYMOUS", "DIGEST-MD5", "EXTERNAL", "PLAIN", "SCRAM-SHA-256-PLUS", "GSSAPI"))
    assert unserved_mechanisms(config, ("SCRAM-SHA-256", "PLAIN")) == ("DIGEST-MD5", "GSSAPI")


@pytest.mark.parametrize(
    ("listed", "demands"),
    [(None, False), ("", False), ("PLAIN", False), ("EXTERNAL", True), ("PLAIN external", True)],
)
def test_a_listener_with_external_demands_a_certificate(listed: str | None, demands: bool) -> None:
    """policy 48"""
    assert demands_certificate(listed) is demands


# Finding the file -------------------------------------------------------------------------------------------------


def test_the_configured_folder_and_name_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.conf").write_text("mech_list: ANONYMOUS")
    assert load_sasl_config(str(tmp_path), "mine", environment={}) == SaslConfig(mechanisms=("ANONYMOUS",))


def test_the_environment_names_folders(tmp_path: Path) -> None:
    (tmp_path / "qdrouterd.conf").write_text("mech_list: ANONYMOUS")
    environment = {"PN_SASL_CONFIG_PATH": f"/nowhere:{tmp_path}"}
    assert load_sasl_config(None, environment=environment) == SaslConfig(mechanisms=("ANONYMOUS",))


def test_a_configured_file_that_is_not_there_is_an_error_not_a_default(tmp_path: Path) -> None:
    """Otherwise a typing error in saslConfigDir would offer ANONYMOUS."""
    with pytest.raises(SaslConfigError, match=f"no SASL configuration qdrouterd.conf in {tmp_path}"):
        load_sasl_config(str(tmp_path), environment={})
    with pytest.raises(SaslConfigError):
        load_sasl_config(None, environment={"PN_SASL_CONFIG_PATH": str(tmp_path)})


def test_without_any_configuration_there_is_an_empty_one() -> None:
    assert load_sasl_config(None, "a-name-no-machine-has", environment={}) == SaslConfig()


def test_files_that_cannot_be_a_configuration_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.conf").mkdir()
    (tmp_path / "huge.conf").write_bytes(b"#" * 100_000)
    for name in ("folder", "huge", "../etc/passwd", ""):
        with pytest.raises(SaslConfigError):
            load_sasl_config(str(tmp_path), name, environment={})


def bound(**data: bytes) -> Channel:
    return Channel(binding={name.replace("_", "-"): value for name, value in data.items()}.get)


@pytest.mark.parametrize(
    ("channel", "offered"),
    [
        (bound(tls_server_end_point=b"x"), ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN")),
        (bound(tls_unique=b"x"), ("SCRAM-SHA-256", "PLAIN")),
        (Channel(), ("SCRAM-SHA-256", "PLAIN")),
    ],
)
def test_the_forms_with_channel_binding_are_offered_where_there_is_one(
    channel: Channel, offered: tuple[str, ...]
) -> None:
    """Not offered where it could be, a client would be talked out of it by somebody in between."""
    served = ("SCRAM-SHA-256", "PLAIN")
    found = offered_mechanisms(
        SaslConfig(), served=served, sasl_mechanisms=None, authenticate_peer=True, channel=channel
    )
    assert found == offered


def test_a_value_may_have_colons() -> None:
    config = parse_sasl_config("pwcheck_method: auxprop\nauxprop_plugin: userfile\nuserfile_path: /etc/a:b\n", "x")
    assert config.user_file == "/etc/a:b"


def test_a_database_that_cannot_be_read_is_named_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "qdrouterd.conf"
    path.write_text(FOREIGN)
    assert load_sasl_config(str(tmp_path), environment={}).database_fault == (
        f"{path}: the user database of auxprop_plugin 'sql' cannot be read by this router. Enter its users into a user "
        "file, for each: qdpasswd -c -f FILE USER, and set auxprop_plugin: userfile and userfile_path: FILE"
    )


HAS = "and a mech_list that has it"
WANTS = {
    "EXTERNAL": f"EXTERNAL wants an sslProfile with caCertFile, {HAS}",
    "ANONYMOUS": f"ANONYMOUS wants authenticatePeer: no, {HAS}",
    "PLAIN": f"PLAIN wants users (saslConfigDir of the router, or authenticators), {HAS}",
    "GSSAPI": f"GSSAPI wants a keytab (SASL configuration, kerberosAuthenticator), {HAS}",
    "DIGEST-MD5": "there is nobody to answer DIGEST-MD5",
}


def test_why_a_mechanism_is_not_served_is_said_with_what_would_be_right() -> None:
    for name, text in WANTS.items():
        assert why_unserved(name.lower(), authenticates=True) == text
    assert why_unserved("ANONYMOUS", authenticates=False) == "ANONYMOUS wants a mech_list that has it"
    assert why_unserved("plain,gssapi PLAIN", authenticates=True) == f"{WANTS['PLAIN']}; {WANTS['GSSAPI']}"
