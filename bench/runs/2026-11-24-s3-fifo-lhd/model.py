"""Prints the object hit ratio of S3-FIFO or LHD as libCacheSim 0.3.5 computes it, or with rules of edgeward instead.

usage: model.py s3-fifo|lhd TRACE CAPACITY_BYTES [RULE]...

TRACE is an uncompressed oracleGeneral file. Without a RULE, the model has all rules of libCacheSim. Each RULE replaces
one of them by the rule of edgeward:

  s3-fifo  start   a new object enters the small queue, also while the cache fills for the first time
           large   an object larger than the small queue is admitted if it has a ghost or fits into free space
           number  at most 2 ghosts for each resident object, and 1,024 more
  lhd      all     an eviction compares each object once if there are at most 8
           forget  an evicted object is no longer one of the recently admitted objects
           size    an object keeps the size of its admission
           seed=N  another state of the random numbers at the start

LHD is modelled without reconfigurations, so TRACE must have less than 2^20 requests.
"""

import struct
import sys
from collections import OrderedDict
from ctypes import c_float


class Queue(OrderedDict):
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


class S3Fifo:
    def __init__(self, capacity, rules):
        self.capacity, self.rules = capacity, rules
        self.small_max = int(capacity * 0.1)
        self.main_max, self.ghosts_max = capacity - self.small_max, int(capacity * 0.9)
        self.small, self.main, self.ghosts = Queue(), Queue(), Queue()
        self.hits, self.has_evicted = {}, False

    def request(self, key, size):
        if key in self.small or key in self.main:
            self.hits[key] += 1
            return True
        had_ghost = key in self.ghosts
        if had_ghost and ("large" not in self.rules or size <= self.capacity):
            self.ghosts.take(key)
        if not self.admits(size, had_ghost):
            return False
        while self.small.bytes + self.main.bytes + size > self.capacity:
            self.evict()
        is_filled = self.small.bytes >= self.small_max and not self.has_evicted and "start" not in self.rules
        (self.main if had_ghost or is_filled else self.small).push(key, size)
        self.hits[key] = 0
        return False

    def admits(self, size, had_ghost):
        if "large" not in self.rules:
            # An object of this size is rejected at its insertion, after it has made room for itself.
            if size == self.small_max and not had_ghost:
                while self.small.bytes + self.main.bytes + size > self.capacity:
                    self.evict()
                return False
            return size <= self.small_max
        if size > self.capacity:
            return False
        return had_ghost or size <= self.small_max or self.small.bytes + self.main.bytes + size <= self.capacity

    def evict(self):
        self.has_evicted = True
        if self.main.bytes > self.main_max or not self.small:
            self.evict_main()
        else:
            self.evict_small()

    def evict_small(self):
        while self.small:
            key = self.small.oldest()
            size = self.small.take(key)
            if self.hits[key] < 2:
                del self.hits[key]
                self.add_ghost(key, size)
                return
            self.hits[key] = 0
            self.main.push(key, size)

    def evict_main(self):
        while True:
            key = self.main.oldest()
            size = self.main.take(key)
            hits = min(self.hits[key], 3)
            if hits == 0:
                del self.hits[key]
                return
            self.hits[key] = hits - 1
            self.main.push(key, size)

    def add_ghost(self, key, size):
        if size > self.ghosts_max:
            return
        while self.ghosts.bytes + size > self.ghosts_max:
            self.ghosts.take(self.ghosts.oldest())
        self.ghosts.push(key, size)
        if "number" in self.rules:
            while len(self.ghosts) > 2 * (len(self.small) + len(self.main)) + 1024:
                self.ghosts.take(self.ghosts.oldest())


class Tag:
    __slots__ = ("key", "size", "last", "ages", "is_explorer")


class Lhd:
    """LHD before its first reconfiguration, when densities do not depend on the traffic."""

    def __init__(self, capacity, rules):
        self.capacity, self.rules = capacity, rules
        self.random = next((int(rule[5:]) for rule in rules if rule.startswith("seed=")), 0xDEADBEEF)
        self.tags, self.positions, self.used, self.now = [], {}, 0, 0
        self.recent, self.next_recent, self.victim_density = [None] * 8, 0, 0.0
        self.explorer_bytes = int(capacity * c_float(0.01).value)

    def draw(self):
        self.random = self.random * 0xDA942042E4DD58B5 & (1 << 128) - 1
        return self.random >> 64

    def request(self, key, size):
        tag = self.positions.get(key)
        if tag is not None:
            tag = self.tags[tag]
            if "size" not in self.rules:
                self.used += size - tag.size
            self.update(tag, size)
            return True
        if size > self.capacity:
            return False
        while self.used + size > self.capacity:
            self.evict()
        tag = Tag()
        tag.key, tag.size, tag.ages, tag.is_explorer = key, size, (0, AGES), False
        self.positions[key] = len(self.tags)
        self.tags.append(tag)
        self.used += size
        self.update(tag, size, is_new=True)
        return False

    def update(self, tag, size, is_new=False):
        if not is_new:
            if tag.is_explorer:
                self.explorer_bytes += tag.size
            tag.ages = (self.age(tag), tag.ages[0])
            if "size" not in self.rules:
                tag.size = size
        tag.last = self.now
        is_drawn = self.draw() % 32 == 0
        tag.is_explorer = is_drawn and self.explorer_bytes > 0
        if tag.is_explorer:
            self.explorer_bytes -= tag.size
        if is_new and not is_drawn and self.density(tag) < self.victim_density:
            self.recent[self.next_recent % 8] = tag.key
            self.next_recent += 1
        self.now += 1

    def age(self, tag):
        return self.now - tag.last >> 10

    def density(self, tag):
        sum_of_ages, of_class = sum(tag.ages), 15
        if sum_of_ages > 0:
            of_class = 0
            while sum_of_ages < AGES and of_class < 15:
                sum_of_ages, of_class = sum_of_ages * 2, of_class + 1
        density = c_float((17 + of_class) / (self.age(tag) + 1)).value
        density = c_float(density / max(tag.size, 1)).value
        return c_float(density + 1.0).value if tag.is_explorer else density

    def evict(self):
        count = len(self.tags)
        if "all" in self.rules and count <= 8:
            candidates = list(range(count))
        else:
            candidates = [self.draw() % count for _ in range(8)]
        candidates += [self.positions[key] for key in self.recent if key in self.positions]
        victim = min(candidates, key=lambda at: self.density(self.tags[at]))
        tag = self.tags[victim]
        self.victim_density = 0.9 * self.victim_density + 0.1 * self.density(tag)
        if tag.is_explorer:
            self.explorer_bytes += tag.size
        self.used -= tag.size
        del self.positions[tag.key]
        last = self.tags.pop()
        if last is not tag:
            self.tags[victim] = last
            self.positions[last.key] = victim
        if "forget" in self.rules:
            self.recent = [None if key == tag.key else key for key in self.recent]


AGES = 20000

name, path, capacity = sys.argv[1], sys.argv[2], int(sys.argv[3])
cache = {"s3-fifo": S3Fifo, "lhd": Lhd}[name](capacity, sys.argv[4:])
requests = hits = 0
with open(path, "rb") as trace:
    for _, key, size, _ in struct.iter_unpack("<IQIq", trace.read()):
        requests += 1
        hits += cache.request(key, size)
assert name != "lhd" or requests < 1 << 20
print(f"{hits / requests:.6f}")
