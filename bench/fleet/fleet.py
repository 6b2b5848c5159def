"""Runs a fleet on loopback and measures one of its laws: fleet.py SCENARIO EDGEWARD [NAME=VALUE]...

Prints one JSON object. Needs a network namespace of its own (`unshare --net`), which this script prepares.
"""
import asyncio
import collections
import inspect
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import types

from http1 import Connection, quantile

from clients import Answers, owners_of, read_trace, send_all, write_at_speed
from nodes import CLIENT_PORT, HOST, NATS_PORT, Fleet, Versions, wait_until


def percentiles(name, values):
    return {f"{name}.p50": quantile(values, 0.5), f"{name}.p99": quantile(values, 0.99), f"{name}.max": max(values)}


def max_by_mean(counts, names):
    values = [counts[name] for name in names]
    return max(values) / statistics.mean(values)


def names_of(nodes):
    return [node.name for node in nodes]


async def measure_replay(edgeward, trace, nodes, hot_mib, requests, clients, wait, workers, replicate):
    """Replays a trace through a fleet of `nodes`, or through one edge without a fleet. The first fifth of the requests
    fills the caches and is not counted."""
    warmup = requests // 5
    fleet = Fleet(edgeward, nodes, hot=f"{hot_mib}MiB", nats=nodes > 1, asks=nodes > 1, wait=wait, workers=workers,
                  replicate=replicate)
    async with fleet:
        started = time.monotonic()
        await send_all(fleet.nodes, read_trace(trace, 0, warmup), clients, Answers())
        before, cpu_before = await fleet.origin.counts(), [node.cpu_seconds() for node in fleet.nodes]
        begun = time.monotonic()
        answers = await send_all(fleet.nodes, read_trace(trace, warmup, requests), clients, Answers(), seed=2)
        seconds, after = time.monotonic() - begun, await fleet.origin.counts()
        cpu = {node.name: node.cpu_seconds() - used for node, used in zip(fleet.nodes, cpu_before)}
        names = names_of(fleet.nodes)
        result = answers.ratios() | {
            "failed": answers.counts["failed"], "errors": answers.errors[:5], "seconds": seconds,
            "seconds_with_warmup": time.monotonic() - started,
            "origin_requests": after["requests"] - before["requests"] - 1,  # the reading of the counts
            "origin_bytes": after["body_bytes"] - before["body_bytes"],
            "cpu_load_max": max_by_mean(cpu, names), "cpu_seconds": sum(cpu.values()),
        }
        result["origin_hit_ratio"] = 1 - result["origin_requests"] / result["requests"]
        if nodes > 1:
            slow = 'edgeward_fleet_requests_total{result="slow"}'
            copied = [f'edgeward_fleet_copies_total{{result="{word}"}}' for word in ("stored", "cold", "refused")]
            sums = await fleet.sums(slow, *copied, "edgeward_fleet_copy_hits_total")
            result |= {
                "request_load_max": max_by_mean(answers.owner_requests, names),
                "byte_load_max": max_by_mean(answers.owner_bytes, names),
                "owner_requests": [answers.owner_requests[name] for name in names],
                "fallbacks": sums[slow], "copies": [sums[name] for name in copied],
                "copy_hits": sums["edgeward_fleet_copy_hits_total"],
            }
        return result


def simulate(edgeward, trace, nodes, hot_mib, requests, replicate):
    """Returns the reports of `edgeward simulate` by kind."""
    command = [edgeward, "simulate", str(trace), "--requests", str(requests), "--policy", "density", "--capacity",
               f"{hot_mib}MiB", "--nodes", str(nodes), "--replicate", f"{100 * replicate}%", "--object-overhead", "679",
               "--warmup", "20%", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {run["kind"]: run for run in json.loads(done.stdout)["fleets"]}


async def share(edgeward, trace, nodes=3, hot_mib=192, requests=200_000, clients=1, wait="1s", workers=1,
                replicate=0.01):
    """Acceptance of the cache: a fleet beside one node with the sum of the memory, and beside the simulation."""
    fleet = await measure_replay(edgeward, trace, nodes, hot_mib // nodes, requests, clients, wait, workers, replicate)
    one = await measure_replay(edgeward, trace, 1, hot_mib, requests, clients, wait, workers, replicate)
    with tempfile.TemporaryDirectory() as folder:
        # Rates are measured over 300 s, so the simulation needs the times of the replay.
        timed = write_at_speed(trace, pathlib.Path(folder) / "timed.csv", requests, fleet["seconds_with_warmup"])
        predicted = simulate(edgeward, timed, nodes, hot_mib // nodes, requests, replicate)

    def points(name, measured, kind):
        return 100 * (predicted[kind][name] - measured[name])
    result = {
        "origin_bytes_to_one_node": fleet["origin_bytes"] / one["origin_bytes"],
        "request_load_max": fleet["request_load_max"], "byte_load_max": fleet["byte_load_max"],
        "cpu_load_max": fleet["cpu_load_max"], "cpu_to_one_node": fleet["cpu_seconds"] / one["cpu_seconds"],
        "failed": fleet["failed"] + one["failed"],
        "predicted_minus_measured.object_hit_points": points("object_hit_ratio", fleet, "fleet"),
        "predicted_minus_measured.byte_hit_points": points("byte_hit_ratio", fleet, "fleet"),
        "fleet": fleet, "one_node": one,
    }
    for kind, report in predicted.items():
        names = ("object_hit_ratio", "byte_hit_ratio", "origin_bytes", "request_load_max_ratio",
                 "byte_load_max_ratio", "moved_by_load_requests", "copy_hits", "peer_requests")
        result["predicted." + kind.replace("-", "_")] = {name: report[name] for name in names}
    for name in ("object", "byte"):
        result[f"one_node_points.{name}"] = points(f"{name}_hit_ratio", one, "one-node")
    errors = [abs(result[f"predicted_minus_measured.{name}_hit_points"]) for name in ("object", "byte")]
    return result | {"prediction_error_points": max(errors)}


def small_objects(count):
    return [(b"/o/%d?size=2000" % number, 2000) for number in range(count)]


async def change_of_members(edgeward, nodes, objects, clients, requests_per_second, joins):
    """The clients request all objects again and again, in another order each time, while a node is killed or joins."""
    total = nodes + 1 if joins else nodes
    async with Fleet(edgeward, total, hot="256MiB", wait="1s") as fleet:
        changed = fleet.nodes[-1]
        if joins:
            changed.stop(signal.SIGTERM)
            await fleet.settled(fleet.nodes[:-1])
        load, running = small_objects(objects), [node for node in fleet.nodes if node.is_running()]
        pause = clients / requests_per_second
        draw = random.Random(1)

        async def one_pass(answers, nodes, seed):
            before = (await fleet.origin.counts())["requests"]
            order = list(load)
            draw.shuffle(order)
            await send_all(nodes, order, clients, answers, seed, pause)
            return (await fleet.origin.counts())["requests"] - before - 1

        await one_pass(Answers(), running, 1)
        targets = [target for target, _ in load]
        owners_before = await owners_of(*fleet.nodes[:2], targets)
        full = Answers()
        full_fetches = await one_pass(full, running, 2)
        during, fetches = Answers(keeps_times=True), []
        changing = asyncio.create_task(one_pass(during, fleet.nodes, 3))
        await asyncio.sleep(0.3 * objects / requests_per_second)
        begun = time.monotonic()
        changed_at = time.perf_counter()
        if joins:
            await changed.start()
        else:
            changed.stop(signal.SIGKILL)
        left = [node for node in fleet.nodes if node.is_running()]
        settling = asyncio.create_task(settle_time(fleet, left, begun))
        fetches.append(await changing)
        settled_seconds = await settling
        # After a join, the earlier owner still answers its own clients from its copy, so the new owner fetches some
        # objects later.
        refill, again = Answers(keeps_times=True), Answers()
        fetches.append(await one_pass(refill, left, 4))
        fetches.append(await one_pass(again, left, 5))
        owners_after = await owners_of(*fleet.nodes[:2], targets)
        moved = sum(before != after for before, after in zip(owners_before, owners_after))
        fair = 1 / total
        slowest = [seconds for sent, seconds in during.times + refill.times if sent + seconds >= changed_at]
        return {
            "failed": during.counts["failed"] + refill.counts["failed"] + again.counts["failed"],
            "retried": during.counts["retried"], "interrupted_by_running": during.counts["interrupted_by_running"],
            "requests": during.counts["requests"] + refill.counts["requests"],
            "keys_moved": moved / objects, "keys_moved_beyond_fair_points": 100 * (moved / objects - fair),
            "hit_ratio_before": full.ratios()["object_hit_ratio"], "fetches_before": full_fetches,
            "hit_ratio_during": during.ratios()["object_hit_ratio"],
            "hit_ratio_refill": refill.ratios()["object_hit_ratio"],
            "hit_ratio_after": again.ratios()["object_hit_ratio"], "fetches": fetches,
            "refill_fetches_per_moved_key": sum(fetches) / max(1, moved),
            "settled_seconds": settled_seconds, **percentiles("latency_ms", [1000 * value for value in slowest]),
            "errors": (during.errors + refill.errors + again.errors)[:5],
        }


async def settle_time(fleet, nodes, begun):
    await fleet.settled(nodes)
    return time.monotonic() - begun


async def kill(edgeward, nodes=3, objects=20_000, clients=16, rate=1500):
    """A node is killed under load."""
    return await change_of_members(edgeward, nodes, objects, clients, rate, joins=False)


async def join(edgeward, nodes=3, objects=20_000, clients=16, rate=1500):
    """A node joins under load."""
    return await change_of_members(edgeward, nodes, objects, clients, rate, joins=True)


async def purge(edgeward, nodes=3, purges=500, folder="/dev/shm"):
    """The time from a request to purge until each node serves the new version. Each node has its own copy, and clients
    of all nodes request the object again and again. The purge is requested at another node each time."""
    origin = Versions()
    async with Fleet(edgeward, nodes, origin, asks=False, folder=folder) as fleet:
        connections = [Connection(CLIENT_PORT, node.address) for node in fleet.nodes]
        acknowledged, everywhere, refused = [], [], 0

        async def visible_at(connection, target, version, begun):
            while (await connection.get(target, host=HOST))[2] != version:
                await asyncio.sleep(0.0005)
            return time.perf_counter() - begun

        async def acknowledge(node, target, begun):
            status, _ = await node.purge(target)
            return status, time.perf_counter() - begun

        for number in range(purges):
            target = b"/v/%d" % (number % 50)
            for connection in connections:
                await connection.get(target, host=HOST)
            origin.versions[target] = version = origin.versions.get(target, 1) + 1
            begun = time.perf_counter()
            node = fleet.nodes[number % nodes]
            (status, answered), *times = await asyncio.gather(
                acknowledge(node, target, begun),
                *(visible_at(connection, target, b"%d" % version, begun) for connection in connections))
            refused += status != 200
            acknowledged.append(1000 * answered)
            everywhere.append(1000 * max(times))
        for connection in connections:
            connection.close()
        return {"purges": purges, "refused": refused, "beyond_50_ms": sum(time > 50 for time in everywhere),
                "beyond_50_ms_at": [[number, round(time, 1)] for number, time in enumerate(everywhere) if time > 50],
                **percentiles("everywhere_ms", everywhere),
                **percentiles("acknowledged_ms", acknowledged)}


def cut_off(nodes):
    """Drops all packets between these nodes and NATS, as a switch without power does."""
    run = lambda *words: subprocess.run(["nft", *words], check=True)
    run("add", "table", "inet", "bench")
    run("add", "chain", "inet", "bench", "input", "{ type filter hook input priority 0; }")
    for node in nodes:
        for side in ("daddr", "saddr"):
            run("add", "rule", "inet", "bench", "input", "ip", side, node.nats_address, "drop")


def heal():
    subprocess.run(["nft", "delete", "table", "inet", "bench"], check=True)


async def partition(edgeward, nodes=3, purges=1000, seconds=60, rounds=1):
    """All packets between NATS and the nodes 2 and higher are dropped while node 1 purges; then the cut ends."""
    origin = Versions()
    results = collections.defaultdict(list)
    async with Fleet(edgeward, nodes, origin, asks=False) as fleet:
        first, others = fleet.nodes[0], fleet.nodes[1:]
        targets = [b"/v/%d" % number for number in range(purges)]
        for turn in range(rounds):
            for node in fleet.nodes:
                async with Connection(CLIENT_PORT, node.address) as connection:
                    for target in targets:
                        await connection.get(target, host=HOST)
            begun = time.monotonic()
            cut_off(others)
            await asyncio.sleep(2)
            refused, last = 0, None
            for number, target in enumerate(targets):
                origin.versions[target] = turn + 2
                refused += (await first.purge(target))[0] != 200
                # The purges are spread over the cut.
                due = begun + 2 + (seconds - 4) * (number + 1) / purges
                await asyncio.sleep(max(0, due - time.monotonic()))
            cut = [await node.metrics() for node in others]
            behind = [await stale_objects(node, targets[-10:], b"%d" % (turn + 2)) for node in others]
            await asyncio.sleep(max(0, begun + seconds - time.monotonic()))
            position = (await first.metrics())["edgeward_fleet_position"]
            healed = time.perf_counter()
            heal()

            async def has_all(node):
                return (await node.metrics())["edgeward_fleet_position"] >= position

            async def time_of(node):
                await wait_until("the node has all purges", lambda: has_all(node), pause=0.002)
                return time.perf_counter() - healed
            times = await asyncio.gather(*(time_of(node) for node in others))
            stale = sum([await stale_objects(node, targets, b"%d" % (turn + 2)) for node in fleet.nodes])
            await fleet.settled()
            results["caught_up_seconds"].append(max(times))
            results["refused"].append(refused)
            results["stale_after"].append(stale)
            results["stale_of_ten_during"].append(min(behind))
            results["cut_off"].append(min(metrics["edgeward_fleet_cut_off"] for metrics in cut))
        total = {name: max(values) for name, values in results.items() if name != "cut_off"}
        return total | {"rounds": rounds, "purges": purges, "seconds": seconds,
                        "cut_off_told": min(results["cut_off"]),
                        "caught_up_seconds_median": statistics.median(results["caught_up_seconds"]),
                        "all_caught_up_seconds": results["caught_up_seconds"]}


async def stale_objects(node, targets, version):
    """Returns the number of objects that the node serves in another version."""
    async with Connection(CLIENT_PORT, node.address) as connection:
        return sum([(await connection.get(target, host=HOST))[2] != version for target in targets])


async def crash(edgeward, nodes=3, kills=40, seed=1, folder="/dev/shm"):
    """Purges URLs all the time, while nodes and nats-server are killed at random times and start again. At the end, no
    node may serve a version that is older than an acknowledged purge."""
    origin, draw = Versions(), random.Random(seed)
    options = dict(hot="16MiB", disk="256MiB", wait="1s", folder=folder)
    async with Fleet(edgeward, nodes, origin, **options) as fleet:
        acknowledged, counts = {}, collections.Counter()
        is_over = False

        async def get(node, target):
            try:
                async with Connection(CLIENT_PORT, node.address) as connection:
                    return (await connection.get(target, host=HOST))[2]
            except (OSError, asyncio.IncompleteReadError):
                counts["requests_interrupted"] += 1
                return None

        async def purging(worker):
            number = 0
            while not is_over:
                target = b"/v/%d-%d" % (worker, number % 300)
                number += 1
                # Whichever node owns it now stores it.
                await get(draw.choice(fleet.nodes), target)
                origin.versions[target] = version = origin.versions.get(target, 1) + 1
                status, _ = await draw.choice(fleet.nodes).purge(target)
                counts[f"status_{status}"] += 1
                if status == 200:
                    acknowledged[target] = version
                await asyncio.sleep(0)

        workers = [asyncio.create_task(purging(worker)) for worker in range(6)]
        for _ in range(kills):
            await asyncio.sleep(draw.uniform(0.1, 1.5))
            victim = draw.choice([*fleet.nodes, fleet.nats])
            victim.stop(signal.SIGKILL)
            counts["killed_nats" if victim is fleet.nats else "killed_nodes"] += 1
            await asyncio.sleep(draw.choice([0, 0.2, 1.0]))
            await victim.start()
        is_over = True
        await asyncio.gather(*workers)
        await fleet.settled()
        lost, checked = 0, 0
        for node in fleet.nodes:
            async with Connection(CLIENT_PORT, node.address) as connection:
                for target, version in acknowledged.items():
                    _, fields, body = await connection.get(target, host=HOST)
                    checked += 1
                    counts["hits_checked"] += b"; hit" in fields[b"cache-status"]
                    if int(body) < version:
                        lost += 1
                        print(f"lost: {target} version {body} < {version} at {node.name}: {fields}", file=sys.stderr)
        positions = {(await node.metrics())["edgeward_fleet_position"] for node in fleet.nodes}
        purged_all = (await fleet.sums("edgeward_fleet_purged_all_total"))["edgeward_fleet_purged_all_total"]
        return {"lost": lost, "acknowledged": counts["status_200"], "urls": len(acknowledged), "checked": checked,
                "positions": len(positions), "purged_all_of_last_processes": purged_all, **counts}


async def outage(edgeward, nodes=3, seconds=60, clients=8, rate=500, objects=5000):
    """NATS is stopped under load."""
    cut, connected = "edgeward_fleet_cut_off", "edgeward_fleet_stream_connected"
    refused = 'edgeward_fleet_purges_refused_total{cause="disconnected"}'
    current = "edgeward_fleet_directory_current"
    async with Fleet(edgeward, nodes, hot="64MiB", wait="1s") as fleet:
        load, draw = small_objects(objects), random.Random(1)
        await send_all(fleet.nodes, load, clients, Answers())
        members_before = (await fleet.nodes[0].status())["fleet"]["members"]
        fleet.nats.stop(signal.SIGTERM)
        begun, answers, fresh = time.monotonic(), Answers(keeps_times=True), objects
        statuses, reasons = collections.Counter(), set()
        while time.monotonic() < begun + seconds:
            # Half of the requests are for objects that no node has.
            part = [(b"/o/%d?size=2000" % (fresh + number), 2000) for number in range(rate)]
            fresh += rate
            mixed = part + draw.sample(load, rate)
            draw.shuffle(mixed)
            await send_all(fleet.nodes, mixed, clients, answers, draw.random(), clients / (2 * rate))
            for node in fleet.nodes:
                status, text = await node.purge(b"/o/1?size=2000")
                statuses[status] += 1
                reasons.add(json.loads(text).get("error", text))
        during = await fleet.sums(cut, connected, refused, current)
        members_during = (await fleet.nodes[0].status())["fleet"]["members"]
        up = lambda members: sum(member["state"] == "up" for member in members)
        again = time.monotonic()
        await fleet.nats.start()
        await fleet.settled()
        settled_seconds = time.monotonic() - again

        async def accepts():
            return (await fleet.nodes[0].purge(b"/o/1?size=2000"))[0] == 200
        await wait_until("a purge is accepted", accepts)
        target = (await fleet.nodes[0].metrics())["edgeward_fleet_position"]

        async def agree():
            all_metrics = [await node.metrics() for node in fleet.nodes]
            return all(m["edgeward_fleet_position"] == target and m[current] == 1 for m in all_metrics)
        await wait_until("the nodes agree", agree)
        after = await fleet.sums(cut, connected, current)
        return {
            "seconds": seconds, "failed": answers.counts["failed"], "retried": answers.counts["retried"],
            **answers.ratios(), **percentiles("latency_ms", [1000 * value for _, value in answers.times]),
            "purges_503": statuses[503], "purges_other": sum(statuses.values()) - statuses[503],
            "reasons": sorted(reasons), "cut_off_during": during[cut], "connected_during": during[connected],
            "directory_current_during": during[current], "refused_metric": during[refused],
            "members_up_before": up(members_before), "members_up_during": up(members_during),
            "settled_seconds": settled_seconds, "cut_off_after": after[cut], "connected_after": after[connected],
            "directory_current_after": after[current],
        }


async def lists(edgeward, nodes=3, seconds=10, clients=8, rate=500):
    """The nodes have different lists of members for a time. The same load before is the reference."""
    fleet = Fleet(edgeward, nodes, hot="64MiB", nats=False)
    for node in fleet.nodes:
        node.members = fleet.nodes
    waits = "edgeward_fleet_waits_total"
    received = 'edgeward_fleet_received_total{result="loop"}'
    async with fleet:
        fresh = 0

        async def load(answers):
            nonlocal fresh
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                part = [(b"/o/%d?size=2000" % number, 2000) for number in range(fresh, fresh + rate // 4)]
                fresh += rate // 4
                await send_all(fleet.nodes, part + part, clients, answers, fresh, clients / rate)
            return [1000 * value for _, value in answers.times]
        same, other = Answers(keeps_times=True), Answers(keeps_times=True)
        same_times = await load(same)
        # Each node knows itself and the next one only.
        for at, node in enumerate(fleet.nodes):
            node.members = [node, fleet.nodes[(at + 1) % nodes]]
            await node.reload()
        other_times = await load(other)
        stored_twice = await fleet.sums(waits, received)
        return {
            "failed": same.counts["failed"] + other.counts["failed"],
            "requests": other.counts["requests"], **percentiles("same_ms", same_times),
            **percentiles("other_ms", other_times), "waits": stored_twice[waits], "loops": stored_twice[received],
            "hit_ratio_same": same.ratios()["object_hit_ratio"],
            "hit_ratio_other": other.ratios()["object_hit_ratio"],
        }


async def loop(edgeward):
    """The origin of node 2 is node 1, so requests for keys of node 2 return to node 1. Then node 1 has its own address
    as that of node 2."""
    fleet = Fleet(edgeward, 2, nats=False)
    first, second = fleet.nodes
    for node in fleet.nodes:
        node.members = fleet.nodes
    second.origin = f"{first.address}:{CLIENT_PORT}"
    by_origin, by_member = 'edgeward_requests_refused_total{status="508"}', 'edgeward_fleet_received_total{result="loop"}'
    async with fleet:
        async def ask(names):
            statuses, times = collections.Counter(), []
            async with Connection(CLIENT_PORT, first.address) as connection:
                for name in names:
                    begun = time.perf_counter()
                    status, _, _ = await connection.get(b"/o/%d?size=2000" % name, host=HOST)
                    times.append(1000 * (time.perf_counter() - begun))
                    statuses[status] += 1
            return statuses, times
        statuses, times = await ask(range(200))
        counted = await first.metrics()
        result = {
            "status_508": statuses[508], "status_200": statuses[200], "counted_508": counted.get(by_origin, 0),
            **percentiles("latency_ms", times),
        }
        first.members = [first, types.SimpleNamespace(name=second.name, peer_address=first.peer_address)]
        await first.reload()
        statuses, times = await ask(range(1000, 1200))
        counted = await first.metrics()
        return result | {
            "wrong_member.status_200": statuses[200], "wrong_member.status_other": 200 - statuses[200],
            "wrong_member.loops": counted[by_member], **percentiles("wrong_member.latency_ms", times),
        }


SCENARIOS = {function.__name__: function
             for function in (share, kill, join, purge, partition, crash, outage, lists, loop)}


def main():
    scenario, edgeward, *words = sys.argv[1:]
    function = SCENARIOS[scenario]
    defaults = {name: known.default for name, known in inspect.signature(function).parameters.items()}
    options = {}
    for word in words:
        name, _, text = word.partition("=")
        options[name] = type(defaults[name])(text) if defaults[name] is not inspect.Parameter.empty else text
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print(json.dumps(asyncio.run(function(edgeward, **options))))


if __name__ == "__main__":
    main()
