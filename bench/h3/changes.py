"""Reloads and upgrades an edge while clients of HTTP/3 download, and counts what they lose:

    changes.py EDGEWARD CLIENT DIR ADDRESS ADMIN CERTIFICATE CONNECTIONS RELOADS UPGRADES

Then upgrades the edge once more, and kills the earlier process.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

PAUSE_SECONDS = 1.0
QUIET_SECONDS = 10
KILL_SECONDS = 12


class Edge:
    def __init__(self, program, folder, admin):
        self.program, self.folder, self.admin = program, pathlib.Path(folder), admin
        self.failed, self.generation, self.earlier = [], 0, []

    def pid(self):
        return int((self.folder / "pid").read_text())

    def command(self, name):
        done = subprocess.run([self.program, name, "--admin", self.admin, "--token-file", self.folder / "token"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            self.failed.append(f"{name}: {done.stderr}")

    def reload(self):
        self.generation += 1
        path, new = self.folder / "edge.toml", self.folder / "edge.new"
        before, after = (f'X-Generation = "{number}"' for number in (self.generation - 1, self.generation))
        new.write_text(path.read_text().replace(before, after))
        new.rename(path)
        self.command("reload")

    def upgrade(self):
        """Returns the id of the process that was replaced."""
        before, end = self.pid(), time.monotonic() + 20
        self.command("upgrade")
        while self.pid() == before:
            if time.monotonic() > end:
                self.failed.append("the file has no other process id after 20 s")
                break
            time.sleep(0.01)
        self.earlier.append(before)
        return before

    def end(self):
        """Ends all processes. Their port may belong to the next run."""
        for pid in filter(runs, [*self.earlier, self.pid()]):
            os.kill(pid, signal.SIGKILL)
            while runs(pid):
                time.sleep(0.01)


def runs(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def begin(arguments, seconds):
    _, client, _, address, _, certificate, connections, _, _ = arguments
    return subprocess.Popen(
        [client, "downloads", address, certificate, "/b/20000000/1", connections, str(seconds)],
        stdout=subprocess.PIPE, text=True)


def result(client):
    printed = client.communicate()[0]
    if client.returncode != 0:
        raise SystemExit(f"the client ends with {client.returncode}")
    return json.loads(printed)


def main(arguments):
    program, _, folder, _, admin, _, _, reloads, upgrades = arguments
    reloads, upgrades = int(reloads), int(upgrades)
    edge = Edge(program, folder, admin)
    quiet = result(begin(arguments, QUIET_SECONDS))
    count = reloads + upgrades
    client = begin(arguments, int(count * PAUSE_SECONDS * 1.5) + 10)
    time.sleep(2)
    for number in range(count):
        # Spreads the upgrades evenly.
        if (number + 1) * upgrades // count > number * upgrades // count:
            edge.upgrade()
        else:
            edge.reload()
        time.sleep(PAUSE_SECONDS)
    if client.poll() is not None:
        edge.failed.append("the downloads ended before the last change")
    changed = result(client)
    client = begin(arguments, KILL_SECONDS)
    time.sleep(2)
    os.kill(edge.upgrade(), signal.SIGKILL)
    killed = result(client)
    edge.end()
    print("\n".join(edge.failed), file=sys.stderr)
    print(json.dumps(changed | {"changes": count, "changes_failed": len(edge.failed),
                                "quiet": quiet, "killed": killed}))


main(sys.argv[1:])
