"""From a certificate to a user: the table of docs/spec/policy-and-auth.md §6.3, with fingerprints of our own."""

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from auth.certificates import (
    CertificateError,
    certificate_id,
    certificate_subject,
    certificate_user,
    certificate_weakness,
    chain_ends_at_s,
    chain_of,
    end_point_binding,
    expiry_s,
    issuer_digest,
)
from router.control.security import DisplayNamesError, parse_display_names

SUBJECT = "C=US,ST=NC,L=Raleigh,OU=Dev,O=Client,CN=127.0.0.1"
Rdn = list[tuple[ObjectIdentifier, str]]


@pytest.fixture(scope="session")
def der(pki: Any) -> bytes:
    return pki.client.public_bytes(Encoding.DER)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def make() -> Callable[..., bytes]:
    key = ec.generate_private_key(ec.SECP256R1())

    def make(*rdns: Rdn) -> bytes:
        name = x509.Name(
            [x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in rdn]) for rdn in rdns]
        )
        builder = x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        builder = builder.serial_number(1).not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2040, 1, 1))
        return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)

    return make


@pytest.mark.parametrize(
    ("uid_format", "user"),
    [
        ("1", "{1}"),
        ("2", "{2}"),
        ("5", "{5}"),
        ("2noucs", "{2};127.0.0.1;Client;Dev;US;NC"),
        ("1cs", "{1};US;NC"),
        ("cs5", "US;NC;{5}"),
        ("nsuco", "127.0.0.1;NC;Dev;US;Client"),
        ("scounl", "NC;US;Client;Dev;127.0.0.1;Raleigh"),
        ("nnnnnnn", ";".join(["127.0.0.1"] * 7)),
    ],
)
def test_uid_format_builds_the_user_in_its_own_order(der: bytes, uid_format: str, user: str) -> None:
    """policy 48"""
    prints = {"{1}": "sha1", "{2}": "sha256", "{5}": "sha512"}
    for mark, algorithm in prints.items():
        user = user.replace(mark, hashlib.new(algorithm, der).hexdigest())
    found = certificate_user(der, uid_format=uid_format)
    assert (found.user, found.built_id, found.unrecognized) == (user, user, None)


@pytest.mark.parametrize(
    ("uid_format", "unrecognized"),
    [(None, None), ("", None), ("1x", "x"), ("abxd", "a"), ("n n", " "), ("N", "N"), ("nnnnnnnn", None)],
)
def test_an_absent_or_wrong_format_gives_the_subject(
    der: bytes, uid_format: str | None, unrecognized: str | None
) -> None:
    """policy 48"""
    found = certificate_user(der, uid_format=uid_format, display_names={SUBJECT: "never consulted"})
    assert (found.user, found.built_id, found.unrecognized) == (SUBJECT, None, unrecognized)


def test_missing_components_leave_their_place_before_others(make: Callable[..., bytes]) -> None:
    der = make([(NameOID.COUNTRY_NAME, "US")], [(NameOID.COMMON_NAME, "first")], [(NameOID.COMMON_NAME, "second")])
    assert certificate_user(der, uid_format="ncsl").user == "first;US"
    assert certificate_user(der, uid_format="lnsc").user == ";first;;US"


ATTRIBUTES = {"n": NameOID.COMMON_NAME, "o": NameOID.ORGANIZATION_NAME, "u": NameOID.ORGANIZATIONAL_UNIT_NAME}


SUBJECTS = st.fixed_dictionaries({}, optional={each: st.text("a;\\\\=C", min_size=1, max_size=4) for each in "nou"})


@given(st.lists(SUBJECTS, min_size=2, max_size=8, unique_by=str))
def test_no_two_certificates_have_the_same_user(make: Callable[..., bytes], subjects: list[dict[str, str]]) -> None:
    """policy 48: whatever stands in the names, and whichever are missing; the subject of those without any included"""
    users = []
    for subject in subjects:
        rdns = [[(ATTRIBUTES[each], value)] for each, value in subject.items()]
        der = make(*rdns, [(NameOID.LOCALITY_NAME, "x")])
        users.append(certificate_user(der, uid_format="nou").user)
    assert len(set(users)) == len({tuple(subject.get(each) for each in "nou") for subject in subjects})


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("alice;Corp", r"alice\;Corp"),
        (r"DOMAIN\alice", r"DOMAIN\\alice"),
        ("O=Corp", r"O\=Corp"),
        ("1.2.3=x", r"1.2.3\=x"),
        ("a b=c", "a b=c"),
        ("plain name", "plain name"),
    ],
)
def test_what_separates_is_escaped(make: Callable[..., bytes], name: str, user: str) -> None:
    assert certificate_user(make([(NameOID.COMMON_NAME, name)]), uid_format="n").user == user


def test_nobody_has_the_display_name_of_another(make: Callable[..., bytes]) -> None:
    names = {"id-1": "alice", "id-2": "CN=carol", "bob": "bob", "dave": ""}
    for common_name, user in (("id-1", "alice"), ("bob", "bob"), ("dave", "dave"), ("eve", "eve")):
        der = make([(NameOID.COMMON_NAME, common_name)])
        assert certificate_user(der, uid_format="n", display_names=names).user == user
    with pytest.raises(CertificateError, match="'alice' is not in the mapping file"):
        certificate_user(make([(NameOID.COMMON_NAME, "alice")]), uid_format="n", display_names=names)
    carol = make([(NameOID.COMMON_NAME, "carol")])
    with pytest.raises(CertificateError, match="'CN=carol' is not in the mapping file"):
        certificate_user(carol, uid_format="o", display_names=names)
    with pytest.raises(CertificateError, match="'CN=carol' is not in the mapping file"):
        certificate_subject(carol, display_names=names)


def test_if_no_component_is_there_the_user_is_the_subject(make: Callable[..., bytes]) -> None:
    der = make([(NameOID.COMMON_NAME, "alice")])
    assert certificate_user(der, uid_format="lo").user == "CN=alice"


def test_display_names_translate_ids_that_were_built(der: bytes) -> None:
    """policy 49"""
    names = {"127.0.0.1": "alice", "US": ""}
    translated = certificate_user(der, uid_format="n", display_names=names)
    assert (translated.user, translated.built_id) == ("alice", "127.0.0.1")
    assert certificate_user(der, uid_format="c", display_names=names).user == "US"
    assert certificate_user(der, uid_format="o", display_names=names).user == "Client"


@pytest.mark.parametrize(
    ("rdns", "subject"),
    [
        ([[(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h')]], r"CN=a\,b\+c\"d\\e\<f\>g\;h"),
        ([[(NameOID.COMMON_NAME, " x ")], [(NameOID.LOCALITY_NAME, "#y # z=")]], r"L=\#y # z=,CN=\ x\ "),
        ([[(NameOID.COMMON_NAME, "Jürgen")]], r"CN=J\C3\BCrgen"),
        ([[(NameOID.COMMON_NAME, "a\0b\nc\x7f")]], r"CN=a\00b\0Ac\7F"),
        ([[(NameOID.USER_ID, "u"), (NameOID.EMAIL_ADDRESS, "x@y.z")]], "emailAddress=x@y.z+UID=u"),
        ([[(ObjectIdentifier("1.2.3.4.5"), "odd")], [(NameOID.COMMON_NAME, "x")]], "CN=x,1.2.3.4.5=odd"),
    ],
)
def test_the_subject_is_written_as_openssl_writes_rfc_2253(
    make: Callable[..., bytes], rdns: list[Rdn], subject: str
) -> None:
    """The expected texts are the output of `openssl x509 -nameopt RFC2253`, but for the unknown attribute."""
    assert certificate_subject(make(*rdns)) == subject


@pytest.mark.parametrize("common_name", ["alice\0.example.com", "alice\nSERVER", "alice\u202e"])
def test_a_component_that_is_not_printable_makes_no_user(make: Callable[..., bytes], common_name: str) -> None:
    """Attack: a name that a C string ends early, or that forges a log line."""
    der = make([(NameOID.COMMON_NAME, common_name)])
    with pytest.raises(CertificateError):
        certificate_user(der, uid_format="n")


def test_a_certificate_without_subject_makes_no_user(make: Callable[..., bytes]) -> None:
    with pytest.raises(CertificateError):
        certificate_user(make(), uid_format=None)


@given(st.binary(max_size=300))
def test_what_is_no_certificate_is_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(CertificateError):
        certificate_subject(data)


def test_an_altered_certificate_is_read_or_refused_but_nothing_else(der: bytes) -> None:
    for at in range(len(der)):
        try:
            certificate_user(der[:at] + bytes((der[at] ^ 0x20,)) + der[at + 1 :], uid_format="nsuco")
        except CertificateError:
            continue


def test_display_names_are_one_object_of_strings() -> None:
    """policy 49"""
    assert parse_display_names('{"a;b": "alice"}') == {"a;b": "alice"}
    for wrong in ("", "{", "[]", '{"a": 1}', '{"a": {}}', "[" * 100000):
        with pytest.raises(DisplayNamesError):
            parse_display_names(wrong)


# Of a key on P-256, signed by itself with SHA-1, which today's libraries do not do any more.
SIGNED_WITH_SHA1 = """
MIIBcjCCARqgAwIBAgIUE8nE9DmwN7BpSeqVWnXfPSTG2a0wCQYHKoZIzj0EATAP
MQ0wCwYDVQQDDAR3ZWFrMCAXDTI2MTEyMjEyMDEyOVoYDzIxMjYxMDI5MTIwMTI5
WjAPMQ0wCwYDVQQDDAR3ZWFrMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqWB+
c16f+huKhMbsMX9RUrjKTUDNtNQbu7nPgH7t2GVZe83c55qxfB2bqfndsCpQYzbw
00hhqI4EAX/GJGlbaaNTMFEwHQYDVR0OBBYEFJnERF+NxAdVbO2/2gSv3UHCeX9U
MB8GA1UdIwQYMBaAFJnERF+NxAdVbO2/2gSv3UHCeX9UMA8GA1UdEwEB/wQFMAMB
Af8wCQYHKoZIzj0EAQNHADBEAiAUMOzz4D1L67PcFN72pFSFcpJLJFBJBCeB9/FH
Iy6WigIge7eGZKSg99yjQUiLqfgRVAZatnxaGxdOQNfx7KGf3aI=
"""


def test_a_certificate_signed_with_sha1_is_weak_and_one_of_today_is_not(pki: Any) -> None:
    assert certificate_weakness(base64.b64decode(SIGNED_WITH_SHA1)) == "it is signed with sha1"
    assert certificate_weakness(pki.client.public_bytes(Encoding.DER)) is None
    assert certificate_weakness(b"no certificate") == "a certificate that cannot be read"


# The keys of certificates, their names in revocation lists, and their ends


def signed(
    key: Any, *, issuer: str = "ca", serial: int = 7, days: int = 1, signing: Any = None, hashed: Any = None
) -> bytes:
    """DER of a certificate for the key, which `signing` signs; None: the key itself."""
    name, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in ("peer", issuer))
    ends = datetime(2040, 1, days, tzinfo=UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(by).public_key(key.public_key())
    made = made.serial_number(serial).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(ends)
    return made.sign(signing or key, hashed).public_bytes(Encoding.DER)


EC_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("key", "weakness"),
    [
        (lambda: rsa.generate_private_key(65537, 1024), "its key has 1024 bits, fewer than 2048"),
        (lambda: rsa.generate_private_key(65537, 2048), None),
        (lambda: ec.generate_private_key(ec.SECP192R1()), "its key has 192 bits, fewer than 224"),
        (lambda: ec.generate_private_key(ec.SECP224R1()), None),
        (lambda: ed25519.Ed25519PrivateKey.generate(), None),
    ],
)
def test_what_is_too_weak_a_key(key: Any, weakness: str | None) -> None:
    assert certificate_weakness(signed(key(), signing=EC_KEY, hashed=hashes.SHA256())) == weakness


def test_a_certificate_is_named_by_its_issuer_and_number() -> None:
    """A revocation list of another issuer says nothing of it, whatever the number."""
    der = signed(EC_KEY, hashed=hashes.SHA256())
    found = certificate_id(der)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    assert (found.serial, found.issuer) == (7, issuer_digest(issuer))
    assert found.issuer == hashlib.sha256(issuer.public_bytes()).digest()
    assert certificate_id(signed(EC_KEY, issuer="other", hashed=hashes.SHA256())) != found
    assert certificate_id(signed(EC_KEY, serial=8, hashed=hashes.SHA256())) != found
    with pytest.raises(CertificateError):
        certificate_id(b"no certificate")


def test_a_chain_is_the_peers_own_certificate_and_its_signers() -> None:
    own, middle, root = (signed(EC_KEY, issuer=name, hashed=hashes.SHA256()) for name in ("middle", "root", "root "))
    resumed = chain_of(own, [])
    assert (resumed.shown, resumed.signers, resumed.is_whole) == ((certificate_id(own),), (), False)
    whole = chain_of(own, [own, middle, root])
    assert whole.shown == (certificate_id(own), certificate_id(middle), certificate_id(root))
    assert (whole.signers, whole.is_whole) == ((middle, root), True)


def test_when_certificates_end() -> None:
    early, late = (signed(EC_KEY, days=days, hashed=hashes.SHA256()) for days in (1, 2))
    first = datetime(2040, 1, 1, tzinfo=UTC).timestamp()
    assert expiry_s(early) == first
    pem = b"".join(x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM) for der in (late, early))
    assert chain_ends_at_s(pem) == first
    assert chain_ends_at_s(b"no certificate") is None


@pytest.mark.parametrize(("hashed", "used"), [(hashes.SHA256(), "sha256"), (hashes.SHA384(), "sha384")])
def test_a_channel_is_bound_by_the_hash_of_the_signature(hashed: Any, used: str) -> None:
    der = signed(EC_KEY, hashed=hashed)
    assert end_point_binding(der) == hashlib.new(used, der).digest()


def test_a_channel_is_bound_by_sha256_where_the_signature_is_weak_and_not_without_a_hash() -> None:
    """RFC 5929 §4.1."""
    weak = base64.b64decode(SIGNED_WITH_SHA1)
    assert end_point_binding(weak) == hashlib.sha256(weak).digest()
    assert end_point_binding(signed(ed25519.Ed25519PrivateKey.generate())) is None
    with pytest.raises(CertificateError):
        end_point_binding(b"no certificate")


# What the log says of a certificate without a user, and which texts are written otherwise


def why_not(ask: Callable[[], object]) -> str:
    with pytest.raises(CertificateError) as caught:
        ask()
    return str(caught.value)


def test_why_a_certificate_gives_no_user_is_said(make: Callable[..., bytes]) -> None:
    """An operator has nothing else to find the mistake by."""
    assert why_not(lambda: certificate_subject(b"junk")) == "the client certificate cannot be parsed"
    assert why_not(lambda: certificate_subject(make())) == "the client certificate has an empty subject"
    broken = make([(NameOID.COMMON_NAME, "a\nb")])
    said = "the certificate's subject has an unprintable character"
    assert why_not(lambda: certificate_user(broken, uid_format="n")) == said


@pytest.mark.parametrize("content", ["\0abc", "abcd"])
def test_a_name_of_which_a_text_is_a_bit_string_is_refused(make: Callable[..., bytes], content: str) -> None:
    """Attack: a certificate that the library takes, and whose names it does not."""
    der, text, bits = make([(NameOID.COMMON_NAME, content)]), b"\x06\x03\x55\x04\x03\x0c", b"\x06\x03\x55\x04\x03\x03"
    issuer_first = der.replace(text, bits, 1)
    assert why_not(lambda: certificate_id(issuer_first)) == "the certificate's issuer cannot be parsed"
    assert certificate_subject(der) == certificate_subject(issuer_first)
    subject = der.replace(text, bits).replace(bits, text, 1)
    said = "the client certificate's subject cannot be parsed"
    assert why_not(lambda: certificate_subject(subject)) == said
    assert why_not(lambda: certificate_user(subject, uid_format="n")) == said
    assert why_not(lambda: certificate_user(subject, uid_format=None)) == said


def test_a_name_of_bits_is_written_as_hexadecimal_digits() -> None:
    unique = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0\x1f\xab", _ASN1Type.BitString)
    name = x509.Name([unique])
    builder = x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=EC_KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2040, 1, 1))
    der = builder.sign(EC_KEY, hashes.SHA256()).public_bytes(Encoding.DER)
    assert certificate_subject(der) == "x500UniqueIdentifier=001fab"


@pytest.mark.parametrize(
    ("name", "subject", "user"),
    [
        ("~ X !", "CN=~ X !", "~ X !"),
        ("O=a=b=c", "CN=O=a=b=c", r"O\=a=b=c"),
        ("#", r"CN=\#", "#"),
        (" ", r"CN=\ ", " "),
    ],
)
def test_no_more_is_escaped_than_has_to_be(make: Callable[..., bytes], name: str, subject: str, user: str) -> None:
    der = make([(NameOID.COMMON_NAME, name)])
    assert certificate_subject(der) == subject
    assert certificate_user(der, uid_format="n").user == user


def test_a_user_may_be_so_long_and_no_longer(make: Callable[..., bytes]) -> None:
    """Attack: a certificate that puts its length into every line of the log."""
    longest = make([(NameOID.ORGANIZATION_NAME, "x" * 4096)])
    assert certificate_user(longest, uid_format="o").user == "x" * 4096
    said = "the certificate's user name is longer than 4096 characters"
    assert why_not(lambda: certificate_subject(longest)) == said  # `O=` is more
    longer = make([(NameOID.ORGANIZATION_NAME, "x" * 4097)])
    assert why_not(lambda: certificate_user(longer, uid_format="o")) == said
    assert certificate_subject(make([(NameOID.ORGANIZATION_NAME, "x" * 4094)])) == "O=" + "x" * 4094
