"""Attack: a client's certificate makes a library write to the router's standard error, which is its log.

A serial number of 0 or below violates RFC 5280, but an authority may still issue one. The library cryptography then
wrote a warning without time and module, which names the folder of the installation.
"""

from pathlib import Path

import pytest
from certificates import Certificates
from cryptography import x509
from daemon_process import Started
from test_certificate_names import configured, open_as
from test_resumed_certificates import Authority


def test_every_line_of_the_log_is_the_routers(
    tmp_path: Path, certificates: Certificates, daemon: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(builder: x509.CertificateBuilder, number: int) -> x509.CertificateBuilder:
        made = rightly(builder, number)
        made._serial_number = 0
        return made

    rightly = x509.CertificateBuilder.serial_number
    authority = Authority.make(tmp_path)
    router = daemon(configured(tmp_path, certificates, "n"))
    monkeypatch.setattr(x509.CertificateBuilder, "serial_number", careless)
    pair = authority.issue("alice", 3600)
    text = Path(pair[0]).read_bytes()
    with pytest.warns(match="serial number"):
        assert x509.load_pem_x509_certificate(text).serial_number == 0
    assert open_as(router, pair, certificates.ca) == "alice"
    assert [line for line in router.log() if not line[:4].isdigit()] == []
