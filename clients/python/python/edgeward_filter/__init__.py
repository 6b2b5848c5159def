"""Tells which ids certainly do not exist, so that a service can skip requests for them.

    from edgeward_filter import FilterClient

    ids = FilterClient("https://ids.example/sets/resource", [public_key], max_staleness=10)
    if ids.may_exist(resource_id):
        ask_the_service(resource_id)

A client follows a set that ``edgeward filter serve`` publishes, on a background thread. It never answers "absent" for
an id that was committed more than ``max_staleness`` seconds ago. It answers "ask" until it has a filter, and whenever
it cannot prove that the filter is fresh.
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
