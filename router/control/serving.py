"""Runs one Application in its event loop, from its start to the signal that ends it.

Sources: docs/spec/management.md §2.
"""

import asyncio
import gc
import os
import signal

from policy.configuration.schema import Schema
from router.control.application import Application, StartError, made_listeners, place_in_file
from router.control.logs import Logs
from router.core.watch import NORMAL, TEST_HOOKS
from router.io.descriptors import raise_limit
from router.io.process import Report
from router.io.runner import new_runner
from router.io.service_manager import ServiceManager
from router.management.config import Configuration

__all__ = ["StartError", "check", "serve"]


def serve(
    configuration: Configuration,
    schema: Schema,
    logs: Logs,
    *,
    version: str,
    has_test_hooks: bool,
    read_at_ns: int,
    report: Report | None,
    is_auth_service: bool,
) -> int:
    """Starts, and serves until stopped. Returns the exit status.

    read_at_ns       when reading the configuration began, ns since 1970 UTC
    is_auth_service  see Application
    Errors           StartError
    """
    _refuse_connectors(configuration, is_auth_service=is_auth_service)
    with new_runner() as runner:
        application = Application(
            configuration,
            schema,
            logs,
            version=version,
            thresholds=TEST_HOOKS if has_test_hooks else NORMAL,
            read_at_ns=read_at_ns,
            is_auth_service=is_auth_service,
        )
        return runner.run(_serve(application, report))


def check(configuration: Configuration, schema: Schema, logs: Logs, *, version: str, is_auth_service: bool) -> None:
    """Makes everything that the start makes, but opens no port, writes nothing and makes no connection.

    Errors: StartError.
    """
    _refuse_connectors(configuration, is_auth_service=is_auth_service)

    async def made() -> None:
        application = Application(
            configuration, schema, logs, version=version, is_auth_service=is_auth_service, is_check=True
        )
        await application.start()
        for text in application.passed_over:
            logs.write("AGENT", "error", text)
        made_listeners(application)
        await application.stop()

    with new_runner() as runner:
        runner.run(made())


def _refuse_connectors(configuration: Configuration, *, is_auth_service: bool) -> None:
    """Refuses connectors in an authentication service. Errors: StartError."""
    if is_auth_service and (outgoing := configuration.of_type("connector")):
        raise StartError(f"Configuration: an authentication service makes no connections{place_in_file(outgoing[0])}")


async def _serve(application: Application, report: Report | None) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: application.on_loop_error(context))
    raise_limit()
    manager = ServiceManager(os.environ, lambda text: application.logs.write("SERVER", "warning", text))
    application.reloading.tell_by(manager.reloading, manager.reloaded)
    caught: list[int] = []

    def on_stop(number: int) -> None:
        caught.append(number)
        if number == signal.SIGTERM and len(caught) == 1:
            application.drain.on_terminate()
        else:
            application.drain.hurry()

    await application.start()
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
        loop.add_signal_handler(number, on_stop, number)
    loop.add_signal_handler(signal.SIGHUP, application.reload)
    await application.open_listeners()
    # All objects that are loaded now stay. A full garbage collection delays every message, and need not look at these
    # objects.
    gc.collect()
    gc.freeze()
    # A full collection comes after 75,000 more objects, and takes a tenth of a millisecond for each thousand. Attack:
    # links and connections without end cause one several times a second. What ends leaves no cycles of objects, so that
    # almost nothing waits for a collection. Smaller collections look at 1,500 objects, which takes one millisecond; by
    # default at 7,000.
    gc.set_threshold(500, 3, 50)
    gc.enable()
    if report is not None:
        report(application.failure, application.passed_over)
    if not application.stopping.is_set():  # a port that is taken has stopped it
        manager.ready()
    await application.stopping.wait()
    manager.stopping(application.drain.seconds)
    await application.stop()
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP):
        # A signal while the interpreter ends must not turn a clean stop into a death by signal (§2.4).
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    if caught and caught[0] == signal.SIGINT:
        # The parent process must see that an interrupt ended this process (§2.4).
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1 if application.failure is not None else 0
