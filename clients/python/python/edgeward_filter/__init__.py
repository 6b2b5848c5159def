"""Says which ids certainly do not exist, so that no request is needed for them.

    from edgeward_filter import FilterClient

    ids = FilterClient("https://ids.example/sets/resource", [public_key], max_staleness=10)
    if ids.may_exist(resource_id):
        ask_the_service(resource_id)

A client follows what ``edgeward filter serve`` publishes, on a thread of its own, and no id that was
committed more than ``max_staleness`` seconds ago is ever skipped: it answers "ask" until it has a filter, and
whenever it cannot show that it is fresh.
"""

from ._native import (
    Facts,
    Filter,
    FilterClient,
    FilterError,
    ManifestError,
    ManualClock,
    Refused,
    State,
    Status,
    hash_id,
)

__all__ = [
    "Facts",
    "Filter",
    "FilterClient",
    "FilterError",
    "ManifestError",
    "ManualClock",
    "Refused",
    "State",
    "Status",
    "hash_id",
]
