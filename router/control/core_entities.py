"""The entities of the routing core: `address`, `router.address` and `router.link`.

Sources: docs/spec/routing.md §3, §4; docs/spec/management.md §6.5.
"""

from functools import partial

from router.core.core import Core
from router.core.treatments import AddressBook
from router.core.views import address_rows, find_address_row, find_link_by_name, find_link_row, link_rows
from router.management.owners import Owner
from router.management.query import PagedRows


def core_owners(core: Core, addresses: AddressBook) -> tuple[Owner, ...]:
    find_address = partial(find_address_row, core)
    links = PagedRows(partial(link_rows, core), partial(find_link_row, core), partial(find_link_by_name, core))
    return (
        Owner(type="address", create=addresses.add, delete=addresses.remove),
        Owner(type="router.address", rows=PagedRows(partial(address_rows, core), find_address, find_address)),
        Owner(type="router.link", rows=links),
    )
