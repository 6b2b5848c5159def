"""Bytes of npm packages as deltas: `deltas.py PACKAGES`.

PACKAGES has `list.txt`, whose lines are a name, two versions and a file, and a folder `NAME-VERSION` for each version,
as `npm pack` makes it. Compresses with gzip at level 7, and with the program zstd at level 9 without and with the older
version as prefix. Prints a line of JSON for each pair, and the medians.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import zlib

PACKAGES = pathlib.Path(sys.argv[1])
# The magic number and the hash before a frame of dcz.
HEAD_BYTES = 40


def zstd(*arguments):
    return len(subprocess.run(["zstd", "-9", "-q", "-c", *arguments], check=True, capture_output=True).stdout)


ratios = []
for line in (PACKAGES / "list.txt").read_text().splitlines():
    name, old, new, file = line.split()
    before, after = (PACKAGES / f"{name}-{version}" / file for version in (old, new))
    if not (before.exists() and after.exists()):
        print(f"{name}: the file is missing", file=sys.stderr)
        continue
    gzip = len(zlib.compress(after.read_bytes(), 7, wbits=31))
    delta = zstd(f"--patch-from={before}", str(after)) + HEAD_BYTES
    row = {"package": name, "from": old, "to": new, "file": file, "plain": after.stat().st_size}
    row |= {"gzip": gzip, "zstd": zstd(str(after)), "delta": delta, "delta_of_gzip": round(delta / gzip, 4)}
    ratios.append(delta / gzip)
    print(json.dumps(row))
print(json.dumps({"pairs": len(ratios), "median_delta_of_gzip": round(statistics.median(ratios), 4)}))
