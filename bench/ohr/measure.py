"""Runs a command and prints its output, CPU time and peak memory as one JSON object.

usage: measure.py CPU_SECONDS_MAX BYTES_MAX COMMAND [ARGUMENT]...

The kernel reports the CPU time when the process ends, in microseconds. /proc/PID/stat has ticks of 10 ms, which is
too coarse for runs of 300 ms. `exit` is null if a limit of CPU time was reached. Peaks below 10 MB, the memory of
this script, are not visible.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

cpu_seconds_max, bytes_max = int(sys.argv[1]), int(sys.argv[2])


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds_max, cpu_seconds_max + 5))
    resource.setrlimit(resource.RLIMIT_AS, (bytes_max, bytes_max))


begun = time.monotonic()
child = subprocess.Popen(
    sys.argv[3:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=limit
)
# Ends a process that waits forever without using CPU time.
timer = threading.Timer(20 * cpu_seconds_max, child.kill)
timer.start()
out = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
timed_out = timer.finished.is_set()
timer.cancel()
code = os.waitstatus_to_exitcode(status)
print(
    json.dumps(
        {
            "exit": None if timed_out or code == -signal.SIGXCPU else code,
            "out": out.decode(errors="replace"),
            "wall_seconds": round(time.monotonic() - begun, 6),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 6),
            "rss_bytes": usage.ru_maxrss * 1024,
        }
    )
)
