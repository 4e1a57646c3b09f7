"""`qdcerts`: the certificates of a network. No command made one: every operator wrote scripts around openssl."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from auth.authority import hosts_of, make_authority, pem
from auth.qdcerts import main


def run(folder: Path, *arguments: str) -> int:
    return main(["-f", str(folder), *arguments])


def certificates(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


def verify(folder: Path, name: str, host: str) -> None:
    """As a client that trusts ca.crt does. Errors: VerificationError."""
    builder = PolicyBuilder().store(Store(certificates(folder / "ca.crt")))
    builder.build_server_verifier(x509.DNSName(host)).verify(certificates(folder / f"{name}.crt")[0], [])


def is_of_authority(folder: Path, name: str) -> bool:
    """Has the first authority of ca.crt signed it?"""
    try:
        certificates(folder / f"{name}.crt")[0].verify_directly_issued_by(certificates(folder / "ca.crt")[0])
    except InvalidSignature:
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tls"
    assert run(made, "ca") == 0
    assert run(made, "router", "front", "--host", "router.example.com", "--host", "10.0.0.5") == 0
    return made


def test_a_router_serves_under_its_hosts_and_no_others(folder: Path) -> None:
    verify(folder, "front", "router.example.com")
    assert hosts_of(certificates(folder / "front.crt")[0]) == ("router.example.com", "10.0.0.5")
    with pytest.raises(VerificationError):
        verify(folder, "front", "other.example.com")


def test_a_client_is_no_server(folder: Path) -> None:
    """Attack: who has a client's certificate waits for routers' connections."""
    assert run(folder, "client", "anna") == 0
    (leaf,) = certificates(folder / "anna.crt")
    purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert leaf.subject.rfc4514_string() == "CN=anna"
    with pytest.raises(VerificationError):
        verify(folder, "anna", "router.example.com")


def test_keys_are_their_owners_alone(folder: Path) -> None:
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "ca.key": 0o600, "ca.crt": 0o644, "front.key": 0o600, "front.crt": 0o644,
    }  # fmt: skip
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_is_replaced_that_nobody_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert run(folder, "ca") == 1
    assert run(folder, "client", "front") == 1
    assert "front.key is there: `renew`" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """Attack: a link where the key is to be leads it to another place."""
    (folder / "eve.key").symlink_to(tmp_path / "stolen")
    assert run(folder, "client", "eve") == 1
    assert not (tmp_path / "stolen").exists()


def test_a_folder_for_everybody_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: another user of the host puts an authority of his own there."""
    folder.chmod(0o777)
    assert run(folder, "client", "anna") == 1
    assert "others may write to it" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../anna", "a/b", "", ".anna", "ca", "x" * 65, "a\nb"])
def test_a_name_is_a_file_in_the_folder(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "client", name) == 1
    assert "a name has up to 64" in capsys.readouterr().err


def test_a_renewed_router_has_another_key_and_the_same_hosts(folder: Path) -> None:
    (old,), old_key = certificates(folder / "front.crt"), (folder / "front.key").read_bytes()
    assert run(folder, "renew", "front") == 0
    (new,) = certificates(folder / "front.crt")
    assert (new.subject, hosts_of(new)) == (old.subject, hosts_of(old))
    assert new.serial_number != old.serial_number
    assert (folder / "front.key").read_bytes() != old_key
    verify(folder, "front", "router.example.com")


def test_an_authority_is_renewed_while_both_are_trusted(folder: Path) -> None:
    assert run(folder, "ca", "--renew") == 0
    assert len(certificates(folder / "ca.crt")) == 2
    verify(folder, "front", "router.example.com")  # of the old one
    assert run(folder, "client", "anna") == 0
    assert (is_of_authority(folder, "anna"), is_of_authority(folder, "front")) == (True, False)
    assert run(folder, "ca", "--drop-old") == 0
    assert is_of_authority(folder, "anna")
    with pytest.raises(VerificationError):
        verify(folder, "front", "router.example.com")
    assert run(folder, "renew", "front") == 0
    verify(folder, "front", "router.example.com")


def test_the_key_of_the_authority_may_have_a_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, password, other = tmp_path / "tls", tmp_path / "password", tmp_path / "other"
    password.write_text("a long one\n")
    other.write_text("another\n")
    assert run(folder, "--ca-password-file", str(password), "ca") == 0
    assert "ENCRYPTED" in (folder / "ca.key").read_text()
    assert run(folder, "client", "anna") == 1
    assert "is encrypted: give --ca-password-file" in capsys.readouterr().err
    assert run(folder, "--ca-password-file", str(other), "client", "anna") == 1
    assert "its password is wrong" in capsys.readouterr().err
    assert run(folder, "--ca-password-file", str(password), "client", "anna") == 0


def test_a_certificate_ends_with_its_authority(folder: Path) -> None:
    assert run(folder, "client", "anna", "--days", "36500") == 0
    authority, anna = certificates(folder / "ca.crt")[0], certificates(folder / "anna.crt")[0]
    assert anna.not_valid_after_utc == authority.not_valid_after_utc


def test_what_ends_soon_is_listed_with_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(folder, "list", "--days", "30") == 0
    end = datetime.now(UTC) + timedelta(days=397)
    assert f"front.crt: 'front', until {end:%Y-%m-%d}, 396 days, for router.example.com, 10.0.0.5" in (
        capsys.readouterr().out.splitlines()
    )
    assert run(folder, "list", "--days", "400") == 1


def test_a_wrong_key_of_the_authority_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ca.crt").write_bytes(pem(make_authority("another", 1).certificate))
    assert run(folder, "client", "anna") == 1
    assert "it is not the key of the first certificate" in capsys.readouterr().err


def test_without_an_authority_the_way_to_one_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "tls", "client", "anna") == 1
    assert "make the authority first" in capsys.readouterr().err


def test_a_host_is_a_name_in_ascii(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "router", "b", "--host", "r\u00f6uter.example") == 1
    assert "is no host" in capsys.readouterr().err
