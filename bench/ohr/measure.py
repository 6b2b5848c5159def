"""Runs a command and prints its output, CPU time and peak memory as one JSON object.

usage: measure.py LIMIT_SECONDS COMMAND [ARGUMENT]...

The kernel reports the CPU time when the process ends, in microseconds. /proc/PID/stat has ticks of 10 ms, which is
too coarse for runs of 300 ms. `exit` is null if the time limit was reached. Peaks below 10 MB, the memory of this
script, are not visible.
"""

import json
import os
import subprocess
import sys
import threading
import time

limit_seconds = float(sys.argv[1])
begun = time.monotonic()
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
timer = threading.Timer(limit_seconds, child.kill)
timer.start()
out = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
timed_out = timer.finished.is_set()
timer.cancel()
print(
    json.dumps(
        {
            "exit": None if timed_out else os.waitstatus_to_exitcode(status),
            "out": out.decode(errors="replace"),
            "wall_seconds": round(time.monotonic() - begun, 6),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 6),
            "rss_bytes": usage.ru_maxrss * 1024,
        }
    )
)
