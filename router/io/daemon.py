"""qdrouterd: the command line, the process and its signals around one Application.

Sources: docs/spec/management.md §2.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path

from router.control.application import Application, StartError
from router.control.logs import Logs
from router.core.watch import NORMAL, TEST_HOOKS
from router.faults import fault_text
from router.io.descriptors import raise_limit
from router.io.memory import give_back_freed_memory
from router.io.options import Options, UsageError, parse, usage
from router.io.process import DaemonError, become, daemonize
from router.management.config import ConfigError, load_config
from router.management.schema import load_schema

Report = Callable[[str | None], None]


def product_version() -> str:
    try:
        return package_version("palisade-router")
    except PackageNotFoundError:
        return "0+unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon. Returns the exit status."""
    argv = list(sys.argv if arguments is None else arguments)
    try:
        options = parse(argv)
    except UsageError as error:
        print(error, file=sys.stderr)
        _show(usage(argv[0]))
        return 1
    if options.shows_version:
        _show(product_version())
        return 0
    if options.shows_help:
        _show(usage(options.program))
        return 0
    config_path = options.config
    if not options.is_daemon:
        if options.user is not None:
            # Before the configuration is read, as with --daemon. To go on as root would be silent and wrong.
            try:
                become(options.user)
            except DaemonError as error:
                return _failed(str(error), Logs(), options, report=None)
        return run(config_path, options, report=None)
    config_path = str(Path(config_path).absolute())
    return run(config_path, options, report=daemonize(pidfile=options.pidfile, user=options.user))


def _show(text: str) -> None:
    """On standard output, as far as somebody reads it: `qdrouterd --help | head` is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(config_path: str, options: Options, report: Report | None) -> int:
    """Load the configuration and serve until stopped. Returns the exit status."""
    give_back_freed_memory()
    logs = Logs()
    read_at_ns = time.time_ns()
    try:
        schema = load_schema()
        configuration = load_config(config_path, schema)
        with _runner() as runner:
            application = Application(
                configuration,
                schema,
                logs,
                version=product_version(),
                thresholds=TEST_HOOKS if options.has_test_hooks else NORMAL,
                read_at_ns=read_at_ns,
            )
            return runner.run(_serve(application, report))
    except ConfigError as error:
        for early in error.logs:
            logs.write_effect(early)
        return _failed(str(error), logs, options, report)
    except StartError as error:
        return _failed(str(error), logs, options, report)
    except Exception as error:  # our own fault; without its text, which may hold a secret of the configuration
        return _failed(f"Python: {fault_text(error)}", logs, options, report)


def _runner() -> asyncio.Runner:
    """On uvloop where the extra `fast` is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def _failed(text: str, logs: Logs, options: Options, report: Report | None) -> int:
    """The three lines of §2.3, or one to the launching process."""
    logs.write("ERROR", "error", text)
    logs.write("MAIN", "critical", f"Router start-up failed: {text}")
    if report is not None:
        report(text)
    else:
        print(f"{options.program}: {text}", file=sys.stderr, flush=True)
    return 1


async def _serve(application: Application, report: Report | None) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: application.on_loop_error(context))
    raise_limit()
    caught: list[int] = []

    def on_stop(number: int) -> None:
        caught.append(number)
        application.stopping.set()

    await application.start()
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
        loop.add_signal_handler(number, on_stop, number)
    loop.add_signal_handler(signal.SIGHUP, application.reload)
    await application.open_listeners()
    # All objects loaded by now stay. A full garbage collection, which holds up every message, need not look at them.
    gc.collect()
    gc.freeze()
    # Full ones come a fifth as often as by default. Attack: links and connections without end, to have one several
    # times a second. The garbage that waits for it is some 35 MB at most.
    gc.set_threshold(700, 10, 50)
    if report is not None:
        report(application.failure)
    await application.stopping.wait()
    await application.stop()
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP):
        # A signal while the interpreter ends must not turn a clean stop into a death by signal (§2.4).
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    if caught and caught[0] == signal.SIGINT:
        # The parent is to see that an interrupt ended us (§2.4).
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1 if application.failure is not None else 0


if __name__ == "__main__":
    sys.exit(main())
