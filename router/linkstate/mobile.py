"""The addresses that this router and other routers advertise. Source: docs/spec/network.md §9."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from router.linkstate.asking import Asking
from router.linkstate.database import LOWER_ADVERTISEMENTS
from router.linkstate.limits import ADDRESS_BYTES, Limits
from router.linkstate.messages import MobileAddressUpdate

# The addresses that routers exchange. Attack: a peer that advertises a local or a control address.
_MOBILE_KEY: Final = re.compile(r"(?:M[0-9F]|[CDEFH]).", re.DOTALL).match


class LocalAddresses:
    """This router's addresses. Changes between two ticks that cancel each other have no effect.

    mobile_seq  the number of the last update
    """

    def __init__(self, router: str) -> None:
        self._router = router
        self.mobile_seq = 0
        self._announced: dict[str, int] = {}
        self._new: dict[str, int] = {}
        self._gone: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._announced)

    def appear(self, key: str, hint: int) -> None:
        if key in self._gone:
            del self._gone[key]
        elif key not in self._announced:
            self._new[key] = hint

    def go(self, key: str) -> None:
        if key in self._new:
            del self._new[key]
        elif key in self._announced:
            self._gone[key] = None

    def announce(self) -> MobileAddressUpdate | None:
        """Returns the differential update with the changes since the last one. None: nothing changed."""
        if not self._new and not self._gone:
            return None
        self.mobile_seq += 1
        present, absent = tuple(self._new.items()), tuple(self._gone)
        self._announced.update(self._new)
        for key in self._gone:
            del self._announced[key]
        self._new, self._gone = {}, {}
        return MobileAddressUpdate(
            id=self._router, mobile_seq=self.mobile_seq, is_absolute=False, present=present, absent=absent
        )

    def all_announced(self) -> MobileAddressUpdate:
        """Returns the absolute update: all addresses of the last announced sequence."""
        present = tuple(self._announced.items())
        return MobileAddressUpdate(id=self._router, mobile_seq=self.mobile_seq, is_absolute=True, present=present)


@dataclass(frozen=True, slots=True)
class Payer:
    """A link, which pays for the addresses announced on it. A later link with the same tag is another payer.

    order  shows which link came first
    """

    tag: int
    order: int


@dataclass(slots=True)
class Held:
    """The addresses that one router advertised.

    payer        the link that its last update arrived on
    asking       the request for all its addresses
    has_gap      True if they were requested because an update was missed
    left_out     the number of addresses in the last update for which there was no room
    missing      the bytes that those would take
    """

    mobile_seq: int = 0
    keys: dict[str, None] = field(default_factory=dict)
    characters: int = 0
    payer: Payer | None = None
    lower: int = 0
    asking: Asking = field(default_factory=Asking)
    has_gap: bool = False
    left_out: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    mapped: tuple[tuple[str, int | None], ...]
    unmapped: tuple[str, ...]


class RemoteAddresses:
    """The addresses of the known routers."""

    def __init__(self, limits: Limits, room: Callable[[int], int]) -> None:
        """Starts without addresses.

        room  (link tag) → bytes that its neighbour may still use here
        """
        self._limits = limits
        self._room = room
        self._held: dict[str, Held] = {}
        self._counts: Counter[Payer] = Counter()  # addresses
        self._characters: Counter[Payer] = Counter()
        self._charged: dict[Payer, None] = {}  # since the last `take_charges`

    def of(self, router: str) -> Held:
        """Returns the addresses of a known router. They exist until `remove`."""
        held = self._held.get(router)
        if held is None:
            held = self._held[router] = Held()
        return held

    def remove(self, router: str) -> tuple[str, ...]:
        """Forgets the router. Returns the keys that it had."""
        held = self._held.pop(router, None)
        if held is None:
            return ()
        self._pay(held, -1)
        return tuple(held.keys)

    def compare_sequence(self, held: Held, advertised: int) -> bool:
        """Requests the addresses if the router has later ones, or repeatedly advertises fewer updates than stored.

        Returns  True if it repeatedly advertises that it has none, while some are stored
        """
        held.lower = held.lower + 1 if advertised < held.mobile_seq else 0
        has_fewer = held.lower >= LOWER_ADVERTISEMENTS
        if has_fewer:
            held.mobile_seq = held.lower = 0
        if advertised > held.mobile_seq:
            held.asking.want()
        return has_fewer and not advertised

    def apply(self, held: Held, update: MobileAddressUpdate, payer: Payer) -> Difference:
        """Applies an update that is the next one, or absolute. Leaves out addresses for which there is no room."""
        limits, keys = self._limits, held.keys
        size = self._room(payer.tag) + (_bytes_of(held) if held.payer == payer else 0)
        self._pay(held, -1)
        held.payer, held.mobile_seq, held.has_gap, held.lower = payer, update.mobile_seq, False, 0
        held.asking.answered()
        listed = dict(update.present)
        if update.is_absolute:
            unmapped = [key for key in keys if key not in listed]
        else:
            unmapped = [key for key in dict.fromkeys(update.absent) if key in keys]
        for key in unmapped:
            del keys[key]
        held.characters -= sum(map(len, unmapped))
        fresh = [key for key in listed if key not in keys]
        if None in map(_MOBILE_KEY, fresh) or max(map(len, fresh), default=0) > limits.address_characters:
            fresh = [key for key in fresh if _MOBILE_KEY(key) and len(key) <= limits.address_characters]
        room = min(limits.addresses_per_router, limits.addresses_per_link - self._counts[payer]) - len(keys)
        characters = limits.address_bytes_per_link - self._characters[payer] - held.characters
        fitting = _count_fitting(fresh, room, characters, size - _bytes_of(held))
        was_cut, held.left_out = bool(held.left_out), len(fresh) - fitting
        held.missing = sum(ADDRESS_BYTES + len(key) for key in fresh[fitting:])
        del fresh[fitting:]
        keys.update(dict.fromkeys(fresh))
        held.characters += sum(map(len, fresh))
        self._pay(held, 1)
        if was_cut and not update.is_absolute:
            # The addresses without room are not stored: when there is room, all addresses are requested again.
            if room > len(fresh) and not held.left_out:
                held.mobile_seq = 0
                held.asking.want()
            elif not held.left_out:
                held.left_out, held.missing = 1, ADDRESS_BYTES
        return Difference(tuple(zip(fresh, map(listed.__getitem__, fresh), strict=True)), tuple(unmapped))

    def reconsider(self, held: Held) -> None:
        """Requests all addresses again if there is now room for those that were left out."""
        payer, limits = held.payer, self._limits
        if not held.left_out or payer is None:
            return
        room = min(limits.addresses_per_router - len(held.keys), limits.addresses_per_link - self._counts[payer])
        characters = limits.address_bytes_per_link - self._characters[payer]
        if held.left_out <= room and held.missing <= min(characters, self._room(payer.tag)):
            held.left_out = held.missing = held.mobile_seq = 0
            held.asking.want()

    def take_charges(self) -> Iterator[tuple[Payer, int]]:
        """Iterates over the payers with changes since the last call, and the bytes that each now pays for."""
        charged, self._charged = self._charged, {}
        for payer in charged:
            count, characters = self._counts[payer], self._characters[payer]
            if not count:
                del self._counts[payer], self._characters[payer]
            yield payer, count * ADDRESS_BYTES + characters

    def _pay(self, held: Held, sign: int) -> None:
        if held.payer is not None:
            self._counts[held.payer] += sign * len(held.keys)
            self._characters[held.payer] += sign * held.characters
            self._charged[held.payer] = None


def _bytes_of(held: Held) -> int:
    return len(held.keys) * ADDRESS_BYTES + held.characters


def _count_fitting(fresh: list[str], room: int, characters: int, size: int) -> int:
    """Returns how many of the addresses fit: by number, by characters, and by total bytes."""
    wanted = sum(map(len, fresh))
    if len(fresh) <= room and wanted <= characters and len(fresh) * ADDRESS_BYTES + wanted <= size:
        return len(fresh)
    for count, key in enumerate(fresh):
        room, characters, size = room - 1, characters - len(key), size - len(key) - ADDRESS_BYTES
        if min(room, characters, size) < 0:
            return count
    return len(fresh)
