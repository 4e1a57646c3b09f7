"""Each reader of the login campaign on a few inputs; and that the campaign would see what it looks for."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import logins

from auth import scram
from auth.mechanisms import Accepted, Ask, Challenge, Channel


@pytest.fixture(autouse=True)
def nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "make_nonce", lambda: logins.ROUTER_NONCE)


@pytest.mark.parametrize("reader", logins.READERS, ids=lambda reader: reader.name)
def test_no_input_of_a_few_gets_past_a_reader(reader: logins.Reader) -> None:
    assert logins.run(reader, 7, 20.0, 150)


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"])
def test_the_seeds_of_scram_log_in(name: str) -> None:
    """Else nothing behind the first check would ever be reached."""
    first, last = logins.login(name)
    exchange = scram.Scram(name, Channel(binding=lambda _kind: logins.BINDING if "PLUS" in name else None))
    assert isinstance(exchange.respond(first), Ask)
    assert isinstance(exchange.conclude(logins.KEYS), Challenge)
    assert isinstance(exchange.respond(last), Challenge)
    assert isinstance(exchange.respond(b""), Accepted)


def test_a_bypass_is_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scram, "compare_digest", lambda _one, _other: True)
    (reader,) = [each for each in logins.READERS if each.name == "SCRAM"]
    assert not logins.run(reader, 7, 20.0, 5000)
    assert "Bypass" in capsys.readouterr().out


def test_a_token_of_somebody_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "SIGNED", set())
    with pytest.raises(logins.Bypass, match="alice"):
        logins.judge_token(logins.TOKEN)
