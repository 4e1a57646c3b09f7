"""Measures the verbs of `qdpolicy` on 1,000 vhosts of 20 groups of 20 items: 13.6 MB of JSON, as much as a `.conf`.

    python -m benchmarks.qdpolicy_speed                  measure
    python -m benchmarks.qdpolicy_speed --write FOLDER   write the files, and measure nothing

Seconds of processor time, each the least of several runs in its own process, so that other work of the machine has
little effect. The seconds beside them, of Python's own reader for the same text, show how much effect it has.
"""

import argparse
import json
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.policy_speed import vhosts
from policy.files.conf_layout import vhost_section
from policy.files.layout import Comments

AIM_S, ROUNDS, CHANGED = 4.0, 3, 500
VERBS = {
    "lint": "lint {old}",
    "lint, a .conf": "lint {conf}",
    "explain": "explain {old} --user user-500-3 --host 10.0.3.7 --vhost h500.example --receive orders.500.3.1",
    "diff, one group changed": "diff {old} {new}",
    "fmt --check": "fmt --check {old}",
    "fmt --check, with comments": "fmt --check {commented}",
    "convert": "convert {old}",
    "convert --to conf": "convert {old} --to conf",
    "convert, a .conf": "convert {conf}",
    "convert --form compatible": "convert {old} --form compatible",
}
_CALL = """
import json, sys, time
from policy.cli.main import main
began = time.process_time()
with open(sys.argv[1], encoding="utf-8") as file:
    json.loads(file.read())
middle = time.process_time()
status = main(sys.argv[2:])
print(status, middle - began, time.process_time() - middle, file=sys.stderr)
"""


def write(folder: Path) -> dict[str, str]:
    """Writes the files. Returns them by their names in VERBS."""
    entities = vhosts(20, 20, 20)
    files = {name: folder / f"{name}.{'conf' if name == 'conf' else 'json'}" for name in ("old", "new", "commented")}
    files["conf"] = folder / "old.conf"
    text = json.dumps([["vhost", entity] for entity in entities], indent=1)
    files["old"].write_text(text, "utf-8")
    files["commented"].write_text(text.replace('   "groups": {', '   # members, by team\n   "groups": {'), "utf-8")
    sections = (vhost_section(entity, Comments(), is_compact=False) for entity in entities)
    files["conf"].write_text("policy {\n enableVhostPolicy: yes\n}\n" + "\n".join(chain(*sections)), "utf-8")
    entities[CHANGED]["groups"]["g3"]["sources"].append("orders.more")
    files["new"].write_text(json.dumps([["vhost", entity] for entity in entities], indent=1), "utf-8")
    return {name: str(file) for name, file in files.items()}


def measure(arguments: list[str], reference: str) -> tuple[float, float]:
    """Returns the seconds of reading `reference` with json.loads, and of the verb. Raises RuntimeError if it fails."""
    command = [sys.executable, "-c", _CALL, reference, *arguments]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    words = (ended.stderr.splitlines() or [""])[-1].split()
    if ended.returncode or len(words) != 3 or int(words[0]) > 1:
        raise RuntimeError(f"qdpolicy {' '.join(arguments)}: {ended.stderr}")
    return float(words[1]), float(words[2])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qdpolicy_speed", description=__doc__)
    parser.add_argument("--write", metavar="FOLDER", type=Path, help="write the files there, and measure nothing")
    options = parser.parse_args()
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        print("\n".join(write(options.write).values()))
        return 0
    is_over = False
    began = time.monotonic()
    with TemporaryDirectory(prefix="palisade-bench-") as folder:
        files = write(Path(folder))
        print(f"{'':28}   seconds     aim   times json.loads")
        for name, template in VERBS.items():
            arguments = template.format(**files).split()
            runs = [measure(arguments, files["old"]) for _ in range(ROUNDS)]
            reading, taken = min(each for each, _ in runs), min(each for _, each in runs)
            is_over = is_over or taken > AIM_S
            print(f"{name:28} {taken:9.2f} {AIM_S:7.0f}   {taken / reading:16.1f}", flush=True)
    print(f"measured in {time.monotonic() - began:.0f} s")
    return 1 if is_over else 0


if __name__ == "__main__":
    sys.exit(main())
