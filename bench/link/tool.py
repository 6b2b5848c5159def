#!/usr/bin/env python3
"""Sends or stores three successive versions of packages with one tool: tool.py TOOL LINK_SAVINGS CORPUS [PACKAGE]

Prints the bytes, their ratio to the size of the packages, and the CPU time. For the link, prints the same ratio for the
first version, for each update and for a repeated version.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

tool, savings, corpus = sys.argv[1:4]
package = sys.argv[4] if len(sys.argv) > 4 else "*"
versions = [sorted((pathlib.Path(corpus) / n).glob(f"{package}.tar")) for n in "123"]
raw = sum(tar.stat().st_size for tars in versions for tar in tars)
work = tempfile.TemporaryDirectory()
folder = pathlib.Path(work.name)


def run(*command, **environment):
    command = list(map(str, command))
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, cwd=folder)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed")
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.decode(errors='replace')[-300:]}")
    return done.stdout


def stored():
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def link():
    repeated = versions[-1] if package != "*" else []
    rows = run(savings, "--json", "--average", 8192, *sum(versions, []), *repeated)
    rows = [json.loads(line) for line in rows.splitlines()]
    if package == "*":
        return sum(row["wire"] for row in rows), {}
    names = ["first", "update", "second_update", "repeated"]
    figures = {name: row["bytes"] / row["wire"] for name, row in zip(names, rows)}
    return sum(row["wire"] for row in rows[:3]), {**figures, "zstd": rows[1]["bytes"] / rows[1]["zstd_1_by_256k"]}


def zstd(*flags):
    stream = subprocess.run(["sh", "-c", 'cat "$@" | zstd -T1 -q -c ' + " ".join(flags), "sh", *sum(versions, [])],
                            capture_output=True, check=True)
    return len(stream.stdout), {}


def borg():
    environment = {"BORG_BASE_DIR": str(folder), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
    run("borg", "init", "--encryption=none", folder / "store", **environment)
    before = stored()
    for number, tars in enumerate(versions):
        run("borg", "create", "--compression=zstd,1", f"{folder}/store::{number}", *tars, **environment)
    return stored() - before, {}


def restic():
    command = ["restic", "--quiet", "--repo", folder / "store", "--no-cache"]
    run(*command, "init", RESTIC_PASSWORD="none")
    before = stored()
    for tars in versions:
        run(*command, "backup", *tars, RESTIC_PASSWORD="none")
    return stored() - before, {}


def casync():
    (folder / "store.castr").mkdir()
    for number, tar in enumerate(sum(versions, [])):
        run("casync", "make", "--chunk-size=2048:8192:65536", f"--store={folder}/store.castr",
            folder / f"{number}.caibx", tar)
    return stored(), {}


def rsync():
    total = 0
    for tars in versions:
        text = run("rsync", "--no-whole-file", "--compress", "--stats", "--ignore-times", *tars, folder).decode()
        figures = re.findall(r"Total bytes (?:sent|received): ([\d,.]+)", text)
        total += sum(int(re.sub(r"\D", "", figure)) for figure in figures)
    return total, {}


TOOLS = {"link": link, "zstd-1": lambda: zstd("-1"), "zstd-1-long": lambda: zstd("-1", "--long=27"),
         "zstd-3-long": lambda: zstd("-3", "--long=27"), "borg": borg, "restic": restic, "casync": casync,
         "rsync": rsync}
sent, figures = TOOLS[tool]()
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"raw_bytes": raw, "sent_bytes": sent, "times": raw / sent,
                  "cpu_seconds": usage.ru_utime + usage.ru_stime, **figures}))
