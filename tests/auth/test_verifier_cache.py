"""Answers that are remembered: bounded, for a while, and never an outage."""

import pytest

from auth.credentials import Answer, CheckPassword, FetchGroups, Recheck, VerifyRequest, VerifyResult, unavailable
from auth.identity import Proof
from auth.secrets import Secret
from auth.verifiers import cache
from auth.verifiers.cache import CachedVerifier


class Directory:
    name = "directory"
    mechanisms = ("PLAIN", "EXTERNAL")
    threads = 8

    def __init__(self) -> None:
        self.passwords = {"alice": "wonderland"}
        self.is_down = False
        self.asked: list[VerifyRequest] = []
        self.is_closed = False

    def verify(self, request: VerifyRequest) -> Answer:
        self.asked.append(request)
        if self.is_down:
            return unavailable("down")
        if isinstance(request, CheckPassword):
            return VerifyResult(is_valid=self.passwords.get(request.user) == request.password.reveal())
        if isinstance(request, FetchGroups):
            return VerifyResult(is_valid=True, groups=("staff",))
        assert isinstance(request, Recheck)
        return VerifyResult(is_valid=request.proof.user in self.passwords)

    def close(self) -> None:
        self.is_closed = True


class Scene:
    def __init__(self, seconds: float = 60.0, refused_seconds: float = 5.0) -> None:
        self.now = 1000.0
        self.directory = Directory()
        self.verifier = CachedVerifier(
            self.directory, seconds=seconds, refused_seconds=refused_seconds, clock=lambda: self.now
        )

    def is_valid(self, user: str, password: str) -> bool:
        answer = self.verifier.verify(CheckPassword(user=user, password=Secret(password)))
        assert isinstance(answer, VerifyResult)
        return answer.is_valid


def test_a_good_answer_is_remembered_for_a_while() -> None:
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    assert scene.is_valid("alice", "wonderland")
    assert len(scene.directory.asked) == 1
    scene.now += 60.0
    scene.directory.passwords.clear()
    assert not scene.is_valid("alice", "wonderland")


def test_only_the_very_password_is_remembered() -> None:
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    assert not scene.is_valid("alice", "wonderlan")
    assert not scene.is_valid("bob", "wonderland")


def test_a_changed_password_is_good_at_once() -> None:
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    scene.directory.passwords["alice"] = "new"
    assert scene.is_valid("alice", "new")


def test_a_bad_answer_is_remembered_for_less() -> None:
    scene = Scene()
    assert not scene.is_valid("bob", "builder")
    scene.directory.passwords["bob"] = "builder"
    assert not scene.is_valid("bob", "builder")
    scene.now += 5.0
    assert scene.is_valid("bob", "builder")


def test_an_outage_is_not_remembered() -> None:
    scene = Scene()
    scene.directory.is_down = True
    answer = scene.verifier.verify(CheckPassword(user="alice", password=Secret("wonderland")))
    assert isinstance(answer, VerifyResult)
    assert not answer.is_compared
    scene.directory.is_down = False
    assert scene.is_valid("alice", "wonderland")


def test_who_holds_no_more_is_forgotten() -> None:
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    scene.directory.passwords.clear()
    scene.verifier.verify(Recheck(proof=Proof(verifier="directory", user="alice", value="")))
    assert not scene.is_valid("alice", "wonderland")


def test_groups_are_remembered_apart_from_passwords() -> None:
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    for _ in range(2):
        assert scene.verifier.verify(FetchGroups(user="alice")) == VerifyResult(is_valid=True, groups=("staff",))
    assert len(scene.directory.asked) == 2


def test_guesses_do_not_push_out_who_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: names made up fill the memory, or the room of those who are known."""
    monkeypatch.setattr(cache, "MAX_ENTRIES", 10)
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    for number in range(100):
        assert not scene.is_valid(f"guess{number}", "x")
    asked = len(scene.directory.asked)
    assert scene.is_valid("alice", "wonderland")
    assert len(scene.directory.asked) == asked
    assert not scene.is_valid("guess99", "x")
    assert len(scene.directory.asked) == asked
    assert not scene.is_valid("guess0", "x")
    assert len(scene.directory.asked) == asked + 1


def test_nothing_is_remembered_for_no_time() -> None:
    scene = Scene(seconds=0, refused_seconds=0)
    assert scene.is_valid("alice", "wonderland")
    assert scene.is_valid("alice", "wonderland")
    assert len(scene.directory.asked) == 2


def test_passwords_are_not_kept() -> None:
    scene = Scene()
    assert scene.is_valid("alice", "wonderland")
    assert "wonderland" not in repr(vars(scene.verifier)) + repr(vars(scene.verifier._good))


def test_it_is_closed_with_its_verifier() -> None:
    scene = Scene()
    scene.verifier.close()
    assert scene.directory.is_closed
    assert (scene.verifier.name, scene.verifier.mechanisms, scene.verifier.threads) == (
        "directory",
        ("PLAIN", "EXTERNAL"),
        8,
    )


def test_an_answer_is_recalled_where_nothing_has_to_be_waited_for() -> None:
    scene, question = Scene(), CheckPassword(user="alice", password=Secret("wonderland"))
    assert scene.verifier.recall(question) is None
    assert scene.directory.asked == []
    answer = scene.verifier.verify(question)
    assert scene.verifier.recall(question) == answer
    assert scene.verifier.hits == 1
    assert scene.verifier.recall(CheckPassword(user="alice", password=Secret("Wonderland"))) is None
    with scene.verifier._lock:
        assert scene.verifier.recall(question) is None
    scene.now += 60.0
    assert scene.verifier.recall(question) is None


def test_a_recheck_is_never_recalled() -> None:
    scene = Scene()
    assert scene.verifier.recall(Recheck(proof=Proof(verifier="directory", user="alice", value="1"))) is None


def test_each_answer_that_was_remembered_is_counted() -> None:
    scene, question = Scene(), CheckPassword(user="alice", password=Secret("wonderland"))
    for hits in range(3):
        scene.verifier.verify(question)
        assert scene.verifier.hits == hits
    for hits in (3, 4):
        assert scene.verifier.recall(question) is not None
        assert scene.verifier.hits == hits
    assert scene.verifier.recall(CheckPassword(user="bob", password=Secret("x"))) is None
    assert scene.verifier.hits == 4


def test_a_refusal_is_recalled_as_long_as_it_is_remembered() -> None:
    scene, question = Scene(), CheckPassword(user="alice", password=Secret("wrong"))
    answer = scene.verifier.verify(question)
    assert scene.verifier.recall(question) == answer == VerifyResult(is_valid=False)
    scene.now += 5.0
    assert scene.verifier.recall(question) is None
