"""Attack: a peer finds out which users exist by SCRAM's first answer, with its salts and iterations."""

from collections import Counter
from pathlib import Path

from auth.credentials import FetchScramKeys, ScramKeys
from auth.secrets import Secret
from auth.verifiers.files import UserFileVerifier
from auth.verifiers.hashes import Argon2idCost, hash_password
from auth.verifiers.scram_keys import make_scram_keys, read_scram_keys

# Of ten users three have moved to more iterations, as after a change of the default.
OLD, NEW = 4096, 8192
USERS = {f"user {number}": NEW if number < 3 else OLD for number in range(10)}
NAMES = [f"made up {number}" for number in range(2000)]


def write(path: Path, users: dict[str, int], first: str = "") -> None:
    hashed = hash_password(Secret("p"), Argon2idCost(memory_kib=8, iterations=1, lanes=1))
    lines = (f"{user}:{hashed} {make_scram_keys(Secret('p'), 'SHA-256', count)}\n" for user, count in users.items())
    replaced = path.with_suffix(".new")
    replaced.write_text(first + "".join(lines))
    replaced.chmod(0o600)
    replaced.replace(path)


def keys_of(verifier: UserFileVerifier, name: str) -> ScramKeys:
    answer = verifier.verify(FetchScramKeys(user=name, hash_name="SHA-256"))
    assert isinstance(answer, ScramKeys)
    return answer


def test_made_up_names_have_each_number_of_iterations_as_often_as_users(tmp_path: Path) -> None:
    write(tmp_path / "users", USERS)
    verifier = UserFileVerifier(str(tmp_path / "users"))
    found = Counter(keys_of(verifier, name).iterations for name in NAMES)
    assert found.keys() == {OLD, NEW}
    assert 0.25 < found[NEW] / len(NAMES) < 0.35
    assert len({len(keys_of(verifier, name).salt) for name in (*NAMES, *USERS)}) == 1
    salts = {keys_of(verifier, name).salt for name in NAMES}
    assert len(salts) == len(NAMES)
    bytes_seen = Counter(b"".join(salts))
    mean = bytes_seen.total() / 256
    assert sum((bytes_seen[byte] - mean) ** 2 for byte in range(256)) / mean < 400, "chi-squared of 255 degrees"


def test_a_made_up_name_keeps_its_keys_when_the_file_changes(tmp_path: Path) -> None:
    """Attack: to ask for many names before and after a change: all but those of users would have new salts."""
    path = tmp_path / "users"
    write(path, USERS)
    verifier = UserFileVerifier(str(path))
    before = {name: keys_of(verifier, name) for name in NAMES}
    write(path, {"new": OLD, **USERS}, "# another first line, and another first user\n")
    after = {name: keys_of(verifier, name) for name in NAMES}
    changed = [name for name in NAMES if before[name] != after[name]]
    assert len(changed) < len(NAMES) * 0.06, "about as many as the shares of the iterations have moved"
    assert all(before[name].salt != after[name].salt for name in changed), "as with a user's new password"


def test_a_file_whose_last_keys_have_gone_answers_as_one_with_new_ones(tmp_path: Path) -> None:
    """Attack: to tell by the length of a salt that no user of the file can log in by SCRAM."""
    path = tmp_path / "users"
    path.touch(0o600)
    nobody = keys_of(UserFileVerifier(str(path)), "made up")
    _, made = read_scram_keys(make_scram_keys(Secret("p"), "SHA-256"))
    assert (nobody.iterations, len(nobody.salt)) == (made.iterations, len(made.salt))
