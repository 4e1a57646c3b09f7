"""Makes palisade.zip for --py-files: the parts of this project that the driver and the workers import.

python deploy/spark/py_files.py palisade.zip
"""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("spark", "schemas", "policy")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: py_files.py FILE.zip")
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*")):
                if path.suffix in (".py", ".json"):
                    archive.write(path, path.relative_to(ROOT))


if __name__ == "__main__":
    main()
