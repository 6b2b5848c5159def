"""Clients of a fleet, which behave as behind a load balancer without affinity."""
import asyncio
import collections
import csv
import random
import time

from http1 import Connection

from nodes import CLIENT_PORT, HOST

# A client that waits for longer counts its request as failed.
TIMEOUT_SECONDS = 30


class Answers:
    """What the clients have seen."""

    def __init__(self, keeps_times=False):
        self.counts = collections.Counter()
        self.bytes = self.hit_bytes = 0
        # By the name of the node that answered: the owner, if it was asked, or the node of the client from its copy.
        self.owner_requests, self.owner_bytes = collections.Counter(), collections.Counter()
        self.errors, self.times = [], [] if keeps_times else None

    def add(self, fields, body):
        members = fields.get(b"cache-status", b"").split(b", ")
        is_hit = any(b"; hit" in member for member in members)
        self.counts["hits"] += is_hit
        self.bytes += len(body)
        self.hit_bytes += len(body) * is_hit
        # The owner's member is the first one, also in a copy; a hit on a copy is answered by the last one.
        answering = members[-1] if b"; hit" in members[-1] else members[0]
        owner = answering.split(b";")[0].decode()
        self.owner_requests[owner] += 1
        self.owner_bytes[owner] += len(body)

    def ratios(self):
        return {"requests": self.counts["requests"], "object_hit_ratio": self.counts["hits"] / self.counts["requests"],
                "byte_hit_ratio": self.hit_bytes / max(1, self.bytes)}


def read_trace(path, first=0, last=None):
    """Returns the targets and the sizes of the requests of a trace. An object keeps its first size, as in `simulate`."""
    sizes, requests = {}, []
    with open(path) as file:
        rows = csv.reader(file)
        head = next(rows)
        key, size = head.index("key"), head.index("size")
        for number, row in enumerate(rows):
            if number == last:
                break
            requests.append((row[key], sizes.setdefault(row[key], int(row[size]))))
    return [(b"/o/%s?size=%d" % (key.encode(), size), size) for key, size in requests[first:]]


def write_at_speed(path, copy, requests, seconds):
    """Writes the first requests of a trace, sent at one rate within this time. Returns the path of the copy."""
    with open(path) as file, open(copy, "w", newline="") as out:
        rows, writer = csv.reader(file), csv.writer(out)
        head = next(rows)
        writer.writerow(head)
        at = head.index("time")
        for number, row in zip(range(requests), rows):
            row[at] = f"{seconds * number / requests:.3f}"
            writer.writerow(row)
    return copy


async def send_all(nodes, requests, clients, answers, seed=1, pause=0.0):
    """Sends requests in their order, each to a node that is drawn by the seed. A client asks another node if a node
    cannot be reached or ends the connection before its whole response: `retried`. Any other fault of a response counts
    as `failed`."""
    draw, left = random.Random(seed), iter(requests)

    async def client():
        connections = {}
        for target, size in left:
            begun = time.perf_counter()
            first = draw.randrange(len(nodes))
            for step in range(2 * len(nodes)):
                node = nodes[(first + step) % len(nodes)]
                connection = connections.setdefault(node.name, Connection(CLIENT_PORT, node.address))
                try:
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        status, fields, body = await connection.get(target, host=HOST)
                except TimeoutError:
                    connection.close()
                    answers.counts["failed"] += 1
                    answers.errors.append(f"{node.name}: timeout")
                    break
                except (OSError, asyncio.IncompleteReadError) as error:
                    connection.close()
                    answers.counts["retried"] += 1
                    if node.accepts:
                        answers.counts["interrupted_by_running"] += 1
                        answers.errors.append(f"{node.name}: {error!r}")
                    continue
                if status != 200 or size is not None and len(body) != size:
                    answers.counts["failed"] += 1
                    answers.errors.append(f"{node.name}: status {status}, {len(body)} bytes, {fields}")
                else:
                    answers.add(fields, body)
                break
            else:
                answers.counts["failed"] += 1
                answers.errors.append("no node can be reached")
            answers.counts["requests"] += 1
            if answers.times is not None:
                answers.times.append((begun, time.perf_counter() - begun))
            if pause:
                await asyncio.sleep(pause)
        for connection in connections.values():
            connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return answers


async def owners_of(first, second, targets):
    """Returns the name of the owner of each target. A node that has owned a key before still answers from its own copy,
    so another node is asked then."""
    names = []
    async with Connection(CLIENT_PORT, first.address) as one, Connection(CLIENT_PORT, second.address) as other:
        for target in targets:
            for connection in (one, other):
                _, fields, _ = await connection.get(target, host=HOST)
                name = fields[b"cache-status"].split(b";")[0].decode()
                if name != first.name:
                    break
            names.append(name)
    return names
