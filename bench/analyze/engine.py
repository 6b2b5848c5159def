#!/usr/bin/env python3
"""Counts the requests of each URL in a combined log: engine.py ENGINE MEMORY FOLDER

ENGINE is duckdb, datafusion, chdb or awk. MEMORY is a number of megabytes, such as 700MB. Prints the numbers of requests,
of URLs, and of URLs requested once as one JSON object.
"""
import glob
import json
import subprocess
import sys
import tempfile

engine, memory, folder = sys.argv[1:]
files = sorted(glob.glob(folder + "/*.log.zst"))
temporary = tempfile.TemporaryDirectory()
limit = int(memory.removesuffix("MB")) * 1_000_000


def duckdb():
    """Reads a line as columns that are separated by spaces and may be quoted, the fastest way in DuckDB."""
    import duckdb
    settings = {"memory_limit": memory, "temp_directory": temporary.name, "threads": 2}
    connection = duckdb.connect(config=settings)
    connection.execute("SET preserve_insertion_order = false")
    columns = ", ".join(f"c{n}: 'VARCHAR'" for n in range(10))
    return connection.execute(f"""
        SELECT sum(n)::BIGINT, count(*), count(*) FILTER (n = 1)
        FROM (SELECT split_part(c5, ' ', 2) AS url, count(*) AS n
              FROM read_csv($files, auto_detect = false, header = false, delim = ' ', quote = '"', escape = '"',
                            columns = {{{columns}}})
              GROUP BY url)""", {"files": files}).fetchone()


def datafusion():
    import pyarrow
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext
    runtime = RuntimeEnvBuilder().with_disk_manager_specified(temporary.name).with_fair_spill_pool(limit)
    context = SessionContext(SessionConfig().with_target_partitions(2), runtime)
    context.register_csv("log", folder + "/", has_header=False, delimiter="\x01", file_extension=".zst",
                         schema=pyarrow.schema([("line", pyarrow.string())]), file_compression_type="zstd")
    table = context.sql("""
        SELECT sum(n), count(*), count(*) FILTER (WHERE n = 1)
        FROM (SELECT split_part(line, ' ', 7) AS url, count(*) AS n FROM log GROUP BY 1)""").to_arrow_table()
    return table.to_pylist()[0].values()


def chdb():
    import chdb
    return map(int, str(chdb.query(f"""
        SELECT sum(n), count(), countIf(n = 1)
        FROM (SELECT splitByChar(' ', line)[7] AS url, count() AS n
              FROM file('{folder}/*.zst', 'LineAsString', 'line String') GROUP BY url)
        SETTINGS max_threads = 2, max_memory_usage = {limit}, max_bytes_before_external_group_by = {limit // 3}""",
        "TSV")).split())


def awk():
    script = ("zstd -dcq \"$@\" | awk '{print $7}' | LC_ALL=C sort -S 512M -T \"$0\" | uniq -c | "
              "awk '{r += $1; u++; if ($1 == 1) o++} END {print r, u, o}'")
    return map(int, subprocess.check_output(["sh", "-c", script, temporary.name, *files]).split())


engines = {"duckdb": duckdb, "datafusion": datafusion, "chdb": chdb, "awk": awk}
print(json.dumps(dict(zip(["requests", "urls", "once"], engines[engine]()))))
