"""Selects the events of a trail that the detectors can need.

Most of a long trail is quiet: it is read twice, not 20 times.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark.detectors.finding import Detector, Thresholds
from spark.sums.bursts import MAX_KEYS, MAY_BURST, Watch
from spark.sums.picks import Key, Wanted, always
from spark.sums.trail import Trail


def watch(detectors: Sequence[Detector], thresholds: Mapping[str, Thresholds]) -> Watch:
    """Returns the data that these detectors need."""
    focuses = {each.name: each.focus(thresholds[each.name]) for each in detectors if each.focus is not None}
    return Watch(focuses=focuses, absence_days=thresholds["dormant_user"]["dormant_days"])


def focused(trail: Trail, detectors: Sequence[Detector], thresholds: Mapping[str, Thresholds]) -> Trail:
    """Returns the trail with only the events that these detectors can need. Runs a job; persists the events.

    trail  with the sums that they `watch`
    """
    found: dict[str, list[Key]] = defaultdict(list)
    for row in trail.of_kind(MAY_BURST).select("keys").toLocalIterator():
        name, *key = row["keys"]
        if len(found[name]) <= MAX_KEYS:
            found[name].append(tuple(key))
    wanted: list[Wanted] = []
    for detector in detectors:
        if detector.focus is not None:
            focus, keys = detector.focus(thresholds[detector.name]), found[detector.name]
            spans = always(keys) if len(keys) <= MAX_KEYS else None
            wanted.append(Wanted(signs=(*focus.signs, *focus.story), keys=focus.keys, spans=spans))
        if detector.wants is not None:
            wanted += detector.wants(trail, thresholds[detector.name])
    return replace(trail, events=trail.pick(wanted).persist())
