"""Disconnects users who may no longer log in: watches the user file and asks authenticators again."""

from collections.abc import Mapping

from router.control.authenticators import Authenticators
from router.control.credentials import Credentials
from router.control.reloading import Reloading
from router.control.revalidation import Revalidation
from router.control.router import Router


def watch_credentials(
    router: Router, authenticators: Authenticators, policy: Mapping[str, object], reloading: Reloading
) -> None:
    """Begins the watch, for `onPolicyChange: enforce`.

    policy  the attributes of its entity
    Errors  auth.verifiers.files.UserFileError
    """
    if authenticators.user_file is not None:
        credentials = Credentials(authenticators.user_file, router.connections, router.work.finish, router.emit)
        router.is_revoked = credentials.is_revoked
        if every_s := int(str(policy["policyDirWatchSeconds"])):
            reloading.watch(credentials.watch, every_s, "the file of users")
        reloading.add(credentials.watch.take, credentials.read_again)
    revalidation = Revalidation(
        authenticators.recheck,
        router.connections,
        router.work.finish,
        router.emit,
        interval_s=float(str(policy["revalidateInterval"])),
    )
    router.on_second.append(revalidation.on_second)
    reloading.on_stop(revalidation.stop)
