"""Tells which ids certainly do not exist, so that a service can skip requests for them.

    from edgeward_filter import FilterClient

    ids = FilterClient("https://ids.example/sets/resource", [public_key], max_staleness=10)
    if ids.may_exist(resource_id):
        ask_the_service(resource_id)

A background thread of the client downloads the filter that ``edgeward filter serve`` publishes. ``may_exist()`` never
returns False for an id that was committed more than ``max_staleness`` seconds ago. While the client has no filter, or
cannot prove that its filter is fresh, ``may_exist()`` returns True and ``answer()`` returns "ask".
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
