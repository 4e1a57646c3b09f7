"""Which mutants of some files do the tests kill? By forks of one collected session of pytest (tests/mutation).

    .venv/bin/python tests/mutants.py 'policy/lint/*.py' --tests tests/policy/test_lint.py --results lint.txt

mutmut makes the mutants; the changed copy of the checkout stands in mutants/. A line of the results is `killed`,
`lived`, `timeout` (killed by its time), `untested` (no test reaches the function) or `import` (the function has run
when its module is loaded, where no mutant can be chosen), and the mutant's name. Mutants with a line there are not run
again. `--show NAME` prints what a mutant changes.
"""

import argparse
import difflib
import fnmatch
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from mutmut.mutation import trampoline
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import mangled_name_from_mutant_name

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "mutants"
# A mutant has so many times as long as its tests take, and so many seconds more.
FACTOR, MORE_S = 5, 5


@dataclass(slots=True)
class Reach:
    """What a test reaches. functions  mangled names with their module; seconds  how long it takes"""

    functions: set[str]
    seconds: float


@dataclass(slots=True)
class Runner:
    """A plugin of pytest that runs mutants in the place of the collected tests.

    mutants  names with their module
    """

    mutants: Sequence[str]
    results: Path
    jobs: int
    hits: set[str] = field(default_factory=set)
    under_way: dict[int, tuple[str, float]] = field(default_factory=dict)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        at_import = set(self.hits)
        reached = self._reaches(session.items)
        tests: dict[str, list[int]] = {}
        for number in sorted(reached, key=lambda number: reached[number].seconds):
            for function in reached[number].functions:
                tests.setdefault(function, []).append(number)
        for mutant in self.mutants:
            function = mangled_name_from_mutant_name(mutant)
            if function not in tests:
                self._note("import" if function in at_import else "untested", mutant)
                continue
            while len(self.under_way) >= self.jobs:
                self._look()
            usual_s = sum(reached[number].seconds for number in tests[function])
            child = os.fork()
            if child == 0:
                trampoline.set_mutant_under_test(mutant)
                self._run([session.items[number] for number in tests[function]])
            self.under_way[child] = (mutant, time.monotonic() + FACTOR * usual_s + MORE_S)
        while self.under_way:
            self._look()
        return True

    def _reaches(self, items: Sequence[pytest.Item]) -> Mapping[int, Reach]:
        """In a process of its own, so that nothing is remembered here of what a mutant would change."""
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            trampoline.set_mutant_under_test("stats")
            found = {}
            for number, item in enumerate(items):
                self.hits.clear()
                began = time.monotonic()
                following = items[number + 1] if number + 1 < len(items) else None
                if is_passed(item, following):
                    found[number] = Reach(set(self.hits), time.monotonic() - began)
                else:
                    os.write(2, f"not used, it fails without a mutant: {item.nodeid}\n".encode())
            with open(writing, "wb") as pipe:
                pickle.dump(found, pipe)
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            reached: dict[int, Reach] = pickle.load(pipe)
        os.wait()
        return reached

    def _run(self, items: Sequence[pytest.Item]) -> None:
        """Ends the process: 1 when a test fails."""
        os.setpgid(0, 0)
        for item in items:
            if not is_passed(item, None):
                os._exit(1)
        os._exit(0)

    def _look(self) -> None:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            mutant, _ = self.under_way.pop(child)
            self._note("lived" if status == 0 else "killed", mutant)
            return
        for late, (mutant, deadline) in list(self.under_way.items()):
            if time.monotonic() > deadline:
                os.killpg(late, signal.SIGKILL)
                os.waitpid(late, 0)
                del self.under_way[late]
                self._note("timeout", mutant)
        time.sleep(0.002)

    def _note(self, result: str, mutant: str) -> None:
        with self.results.open("a") as file:
            file.write(f"{result} {mutant}\n")


def is_passed(item: pytest.Item, following: pytest.Item | None) -> bool:
    try:
        return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))
    except BaseException:  # SystemExit of a mutant is a failure as well
        return False


def mutated(patterns: Sequence[str]) -> Iterator[str]:
    """Makes the copy of the checkout; the names of the mutants."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    built = [
        str(path.relative_to(ROOT)) for room in ("router", "auth", "policy") for path in (ROOT / room).rglob("*.so")
    ]
    for name in [*listed.stdout.decode().splitlines(), *built]:
        if not (ROOT / name).is_file():
            continue
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            shutil.copy(ROOT / name, COPY / name)
            continue
        found = mutate_file_contents(name, (ROOT / name).read_text("utf-8"))
        (COPY / name).write_text(found.code, "utf-8")
        module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        yield from (f"{module}.{mutant}" for mutant in found.mutant_names)


def shown(mutant: str) -> str:
    """The change, as a diff of the function."""
    module, _, name = mutant.rpartition(".")
    source = (ROOT / (module.replace(".", "/") + ".py")).read_text("utf-8")
    found = mutate_file_contents(module, source)
    lines = found.code.splitlines()

    def of(function: str) -> list[str]:
        span: Any = found.line_span_by_function_name[function]
        return [line.replace(function, "f") for line in lines[span.start - 1 : span.end]]

    before = of(f"{mangled_name_from_mutant_name(name)}__mutmut_orig")
    return "\n".join(difflib.unified_diff(before, of(name), "orig", name, lineterm="", n=1))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the mutants of some files by forks of one pytest session.")
    parser.add_argument("patterns", nargs="*", help="of the files to change, beneath the checkout")
    parser.add_argument("--tests", nargs="+", default=["tests/policy"])
    parser.add_argument("--results", type=Path, default=Path("mutants.txt"))
    parser.add_argument("--only", default="*", help="pattern of mutants' names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", nargs="+", default=[], metavar="MUTANT")
    arguments = parser.parse_args()
    if arguments.show:
        for mutant in arguments.show:
            print(f"# {mutant}\n{shown(mutant)}")
        return 0
    results = arguments.results.resolve()
    done = {line.split()[1] for line in results.read_text().splitlines()} if results.exists() else set()
    mutants = [
        each for each in mutated(arguments.patterns) if each not in done and fnmatch.fnmatch(each, arguments.only)
    ]
    print(f"{len(mutants)} mutants")
    os.chdir(COPY)
    sys.path.insert(0, str(COPY))
    runner = Runner(mutants=mutants, results=results, jobs=arguments.jobs)
    trampoline.record_trampoline_hit = lambda name, caller=None: runner.hits.add(name)  # type: ignore[attr-defined,unused-ignore]
    trampoline.set_mutant_under_test("stats")
    options = ["-p", "no:xdist", "-q", "-m", "not slow", "--hypothesis-profile=mutants"]
    return int(pytest.main([*options, *arguments.tests], plugins=[runner]))


if __name__ == "__main__":
    sys.exit(main())
