"""deploy/constraints.txt and pyproject.toml agree: users got pandas 3, which pyspark does not take; no test saw it."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# Built only where Kerberos' headers are, and for mutation testing.
_NOT_PINNED = {"gssapi", "mutmut"}


def test_every_dependency_has_a_version_that_is_admitted() -> None:
    lines = (ROOT / "deploy" / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if not line.startswith("#"))
    extras = PROJECT["project"]["optional-dependencies"].values()
    groups = PROJECT["dependency-groups"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(each for given in (*extras, *groups) for each in given)]
    for requirement in map(Requirement, wanted):
        if requirement.name not in _NOT_PINNED:
            assert requirement.specifier.contains(pins[requirement.name.lower().replace("_", "-")]), requirement


def test_users_get_a_pandas_that_pyspark_takes() -> None:
    (pandas,) = (
        each for each in map(Requirement, PROJECT["project"]["optional-dependencies"]["spark"]) if each.name == "pandas"
    )
    assert not pandas.specifier.contains("3.0.0")
