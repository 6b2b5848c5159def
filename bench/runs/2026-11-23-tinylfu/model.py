"""Prints the object hit ratio of W-TinyLFU as libCacheSim 0.3.5 computes it, with exact counts instead of its sketch.

usage: model.py TRACE CAPACITY_BYTES [halved]

TRACE is an uncompressed oracleGeneral file. `halved` counts every request, up to 15, and halves all counts after ten
requests per object of the cache, then after each further five.
"""

import struct
import sys
from collections import Counter, OrderedDict


class Segment(OrderedDict):
    """Objects with their sizes, from the oldest to the newest."""

    bytes = 0

    def push(self, key, size):
        self[key] = size
        self.bytes += size

    def take(self, key):
        size = self.pop(key)
        self.bytes -= size
        return size

    def oldest(self):
        return next(iter(self))


class Cache:
    def __init__(self, capacity, halved):
        self.capacity, self.halved = capacity, halved
        self.window_max = int(capacity * 0.01)
        self.main_max = capacity - self.window_max
        self.probation_max, self.protected_max = (int(share * self.main_max) for share in (0.2, 0.8))
        self.window, self.probation, self.protected = Segment(), Segment(), Segment()
        self.counts, self.requests = Counter(), 0

    def count(self, key):
        self.counts[key] += 1
        if not self.halved:
            return
        self.counts[key] = min(self.counts[key], 15)
        self.requests += 1
        objects = len(self.window) + len(self.probation) + len(self.protected)
        if self.requests >= 10 * max(objects, 1024):
            self.requests //= 2
            self.counts = Counter({key: count // 2 for key, count in self.counts.items()})

    def main_bytes(self):
        return self.probation.bytes + self.protected.bytes

    def main_victim(self):
        return (self.probation or self.protected).oldest()

    def evict_main(self):
        (self.probation or self.protected).take(self.main_victim())

    def insert_main(self, key, size):
        segment = self.probation
        if self.probation.bytes + size > self.probation_max:
            if self.protected.bytes + size <= self.protected_max:
                segment = self.protected
            else:
                while self.main_bytes() + size > self.main_max:
                    self.evict_main()
        segment.push(key, size)

    def evict(self):
        while self.window:
            candidate = self.window.oldest()
            is_full = self.main_bytes() + self.window[candidate] > self.main_max
            loses = is_full and self.counts[candidate] <= self.counts[self.main_victim()]
            size = self.window.take(candidate)
            if not loses:
                if is_full:
                    self.evict_main()
                self.insert_main(candidate, size)
            if not self.halved:
                self.count(candidate)
            if is_full:
                return
        self.evict_main()

    def request(self, key, size):
        """Returns true for a hit."""
        if self.halved:
            self.count(key)
        if key in self.window:
            self.window.push(key, self.window.take(key))
            return True
        for segment in (self.probation, self.protected):
            if key in segment:
                self.protected.push(key, segment.take(key))
                self.demote()
                if not self.halved:
                    self.count(key)
                return True
        if size <= self.window_max:
            while self.window.bytes + self.main_bytes() + size > self.capacity:
                self.evict()
            self.window.push(key, size)
            if not self.halved:
                self.count(key)
        return False

    def demote(self):
        while self.protected.bytes > self.protected_max:
            oldest = self.protected.oldest()
            self.probation.push(oldest, self.protected.take(oldest))
            while self.probation.bytes > self.probation_max:
                self.probation.take(self.probation.oldest())


records = list(struct.iter_unpack("<IQIq", open(sys.argv[1], "rb").read()))
cache = Cache(int(sys.argv[2]), "halved" in sys.argv)
hits = sum(cache.request(key, size) for _, key, size, _ in records)
print(f"{hits / len(records):.4f}")
