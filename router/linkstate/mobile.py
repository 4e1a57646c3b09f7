"""The addresses that this router advertises, and those that others do. Source: docs/spec/network.md §9."""

from collections import Counter
from dataclasses import dataclass, field

from router.linkstate.asking import Asking
from router.linkstate.database import LOWER_ADVERTISEMENTS
from router.linkstate.limits import Limits
from router.linkstate.messages import MobileAddressUpdate

# Which addresses are other routers' business. Attack: a peer that advertises a local or a control address.
_PHASES = frozenset("0123456789F")


class LocalAddresses:
    """This router's. What appears and goes between two ticks cancels out.

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
        """The differential update of what changed since the last one. None: nothing did."""
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
        """The absolute update: everything as of the last announced sequence."""
        present = tuple(self._announced.items())
        return MobileAddressUpdate(id=self._router, mobile_seq=self.mobile_seq, is_absolute=True, present=present)


@dataclass(slots=True)
class Held:
    """What one router advertised.

    link         the one that its last update came by, and that pays for it
    asking       for all of them
    has_gap      they were asked for because an update was missed
    is_cut       some found no room
    """

    mobile_seq: int = 0
    keys: dict[str, None] = field(default_factory=dict)
    characters: int = 0
    link: int | None = None
    lower: int = 0
    asking: Asking = field(default_factory=Asking)
    has_gap: bool = False
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    mapped: tuple[tuple[str, int | None], ...]
    unmapped: tuple[str, ...]


class RemoteAddresses:
    """The addresses of the routers that are known."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[str, Held] = {}
        self._counts: Counter[int | None] = Counter()  # addresses by link
        self._characters: Counter[int | None] = Counter()

    def of(self, router: str) -> Held:
        """For routers that are known: there is one for each, until `remove`."""
        held = self._held.get(router)
        if held is None:
            held = self._held[router] = Held()
        return held

    def remove(self, router: str) -> tuple[str, ...]:
        """Forget the router. Returns the keys that it had."""
        held = self._held.pop(router, None)
        if held is None:
            return ()
        self._pay(held, -1)
        return tuple(held.keys)

    def compare_sequence(self, held: Held, advertised: int) -> bool:
        """Ask for the addresses if the router has later ones, or goes on to advertise fewer updates than are held.

        Returns  whether it goes on to say that it has none, while some are held
        """
        held.lower = held.lower + 1 if advertised < held.mobile_seq else 0
        has_fewer = held.lower >= LOWER_ADVERTISEMENTS
        if has_fewer:
            held.mobile_seq = held.lower = 0
        if advertised > held.mobile_seq:
            held.asking.want()
        return has_fewer and not advertised

    def apply(self, held: Held, update: MobileAddressUpdate, link: int) -> Difference:
        """Take over an update that is in its turn, or absolute. What finds no room is left out."""
        self._pay(held, -1)
        held.link, held.mobile_seq, held.has_gap, held.lower = link, update.mobile_seq, False, 0
        held.asking.answered()
        keys = held.keys
        if update.is_absolute:
            listed = {key for key, _ in update.present}
            unmapped = [key for key in keys if key not in listed]
        else:
            unmapped = [key for key in dict.fromkeys(update.absent) if key in keys]
        for key in unmapped:
            del keys[key]
            held.characters -= len(key)
        room = min(self._limits.addresses_per_router, self._limits.addresses_per_link - self._counts[link]) - len(keys)
        characters = self._limits.address_bytes_per_link - self._characters[link]
        was_cut, held.is_cut = held.is_cut, False
        mapped = []
        for key, hint in update.present:
            if key in keys or not self._is_mobile(key):
                continue
            if room <= 0 or held.characters + len(key) > characters:
                held.is_cut = True
                break
            keys[key] = None
            room -= 1
            held.characters += len(key)
            mapped.append((key, hint))
        self._pay(held, 1)
        if was_cut and not update.is_absolute:
            # Which found no room is not remembered: once there is some, all are asked for again.
            if room > 0 and not held.is_cut:
                held.mobile_seq = 0
                held.asking.want()
            else:
                held.is_cut = True
        return Difference(tuple(mapped), tuple(unmapped))

    def _pay(self, held: Held, sign: int) -> None:
        self._counts[held.link] += sign * len(held.keys)
        self._characters[held.link] += sign * held.characters

    def _is_mobile(self, key: str) -> bool:
        if not 1 < len(key) <= self._limits.address_characters:
            return False
        return (len(key) > 2 and key[1] in _PHASES) if key[0] == "M" else key[0] in "CDEFH"
