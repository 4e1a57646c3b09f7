"""The pack: every control with its answer, the rows behind it, and the hashes of all inputs and outputs.

Pure, except `sha256_of`. An answer is `shown` or `gap`; a gap says what is missing. A control that requires more than a
trail can show is a gap in that respect, however many rows there are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from spark.compliance.controls import CHAIN, WITHOUT_ROWS, Control

_BLOCK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The result of `qdaudit verify` for the audit files. Without audit files, None is used instead.

    details  its first findings
    apart    why the table does not have exactly the events that ingest takes from these files; "" if no difference was
             seen
    """

    is_whole: bool
    is_signed: bool
    lines: int
    signed: int
    details: tuple[str, ...]
    apart: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one control.

    rows  of each query, by its name
    """

    control: Control
    result: Literal["shown", "gap"]
    rows: Mapping[str, int]
    gaps: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "standard": self.control.standard,
            "control": self.control.id,
            "asks": self.control.asks,
            "result": self.result,
            "queries": {name: {"rows": count, "file": f"{name}.json"} for name, count in self.rows.items()},
            "gaps": list(self.gaps),
        }


def answers(
    controls: Sequence[Control], rows: Mapping[str, int], chain: Chain | None, *, lost: int, missing: int
) -> list[Answer]:
    """Returns the answers to the controls.

    rows  of each query
    lost  events that the routers report as lost; missing  events that are missing by their numbers
    """
    return [_answer(control, rows, chain, lost=lost, missing=missing) for control in controls]


def _answer(control: Control, rows: Mapping[str, int], chain: Chain | None, *, lost: int, missing: int) -> Answer:
    gaps = [WITHOUT_ROWS[name] for name in control.needs if name != CHAIN and not rows.get(name)]
    if CHAIN in control.needs:
        gaps += _of_chain(chain)
    if control.needs and lost:
        gaps.append(f"{lost} events could not be written by the routers")
    if control.needs and missing:
        gaps.append(f"{missing} events are missing between others")
    if control.elsewhere:
        gaps.append(f"not in this trail: {control.elsewhere}")
    counts = {name: rows[name] for name in control.queries if name != CHAIN}
    return Answer(control=control, result="gap" if gaps else "shown", rows=counts, gaps=tuple(gaps))


def apart(verified: Mapping[str, int], taken: Mapping[str, int], *, told: int, there: int) -> str:
    """Returns why a table does not belong to the audit files, "" if nothing shows that.

    verified  lines of each verified file; taken: lines of each file that went into the table, as the table says
    told      events that the table says it took; there: rows that it has
    """
    for name in sorted({*verified, *taken}):
        if name not in verified:
            return f"lines of {name} are in the table, and the file is not among those verified"
        if verified[name] != taken.get(name, 0):
            return f"{name} has {verified[name]} lines, of which {taken.get(name, 0)} were taken into the table"
    return "" if told == there else f"of {told} events taken into the table {there} are there"


def _of_chain(chain: Chain | None) -> list[str]:
    if chain is None:
        return ["the audit files were not verified: give --trail FOLDER and --key PUBLIC"]
    if not chain.is_whole:
        return [f"the chain of the audit files is broken: {'; '.join(chain.details)}"]
    if chain.apart:
        return [f"the table is not that of the audit files: {chain.apart}"]
    return [] if chain.is_signed else ["the chain is whole and its signatures were not checked: give --key PUBLIC"]


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
