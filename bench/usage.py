"""Runs a command, whose output goes to standard error, and prints the resources that it used: usage.py COMMAND…"""
import json
import os
import sys
import time

start = time.monotonic()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(child, 0)
print(json.dumps({
    "seconds": time.monotonic() - start,
    "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "memory_bytes_max": usage.ru_maxrss * 1024,
}))
sys.exit(os.waitstatus_to_exitcode(status))
