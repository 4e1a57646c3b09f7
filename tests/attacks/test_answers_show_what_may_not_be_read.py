"""Attack: a group that may change something and read nothing sees the rules in the answers to its requests.

An UPDATE that changes nothing was answered with the whole entity. A CREATE with another entity's name was refused with
all attributes of this other entity, of whatever type.
"""

from pathlib import Path

import pytest
from governed_router import governed, login

from router.management.client import BadRequestStatus, ForbiddenStatus

RIGHTS = ["create ban", "update vhost(maxConnections)", "update log(enable)", "update connection(adminStatus)"]
VHOST = {"type": "vhost", "identity": "vhost/$default"}


def test_an_update_that_changes_nothing_does_not_read(tmp_path: Path) -> None:
    with governed(tmp_path, {"clerk": {"management": RIGHTS}}) as router, login(router, "clerk") as clerk:
        with pytest.raises(ForbiddenStatus, match="it takes the right 'read vhost'"):
            clerk.read(**VHOST)
        named = {"name": "vhost/$default", "identity": "vhost/$default", "type": "org.apache.qpid.dispatch.vhost"}
        assert clerk.update({}, **VHOST) == named
        assert clerk.update({"maxConnections": 7}, **VHOST) == {**named, "maxConnections": 7}
        shown = clerk.update({"adminStatus": "enabled"}, type="connection", identity="1")
        assert set(shown) <= {"name", "identity", "type", "adminStatus"}


def test_who_may_read_is_answered_as_ever(tmp_path: Path) -> None:
    rights = {"management": ["read vhost", "update vhost(maxConnections)"]}
    with governed(tmp_path, {"chief": rights}) as router, login(router, "chief") as chief:
        assert chief.update({"maxConnections": 7}, **VHOST)["groups"]["chief"]["users"] == "chief"


@pytest.mark.parametrize("name", ["vhost/$default", "policy/None", "router/governed"])
def test_a_name_that_is_taken_does_not_show_by_whom(tmp_path: Path, name: str) -> None:
    rights = {"clerk": {"management": RIGHTS}, "chief": {"management": ["create ban", "read *"]}}
    with governed(tmp_path, rights) as router:
        with login(router, "clerk") as clerk, pytest.raises(BadRequestStatus) as refused:
            clerk.create({"user": "eve"}, type="ban", name=name)
        assert str(refused.value).endswith(f"duplicates unique attribute 'name' from existing {name.partition('/')[0]}")
        with login(router, "chief") as chief, pytest.raises(BadRequestStatus, match=r"from existing \w+Entity\("):
            chief.create({"user": "eve"}, type="ban", name=name)
