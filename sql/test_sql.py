"""Runs every query of this folder in DataFusion, DuckDB and Spark, and compares the results with `edgeward analyze`.

Usage: test_sql.py EDGEWARD [LOG...]. Without LOG the test generates two logs. EDGEWARD is a build with the
feature `parquet`.
"""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

SQL = pathlib.Path(__file__).parent
UTC = datetime.timezone.utc


def make_logs(folder):
    """Writes the logs of two machines: one in the combined format, with URLs that are not UTF-8 and missing sizes,
    and one of JSON lines with the outcome in the cache. Each log ends with a malformed line."""
    state = 1
    for machine in ("edge-1", "edge-2"):
        (folder / machine).mkdir(parents=True)
        with open(folder / machine / "access.log", "w", encoding="latin-1") as log:
            for n in range(30000):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                url = (state >> 33) % (1 + (state >> 20) % 9000)
                status = 304 if state % 11 == 0 else 404 if url % 97 == 0 else 200
                method = "POST" if state % 31 == 0 else "GET"
                at = datetime.datetime(2026, 11, 20, 20, tzinfo=UTC) + datetime.timedelta(seconds=n)
                if machine == "edge-1":
                    path = f"/\xe9{url}.png" if url % 50 == 7 else f"/{url}.css?v={url % 3}"
                    size = "-" if status == 304 else url * 13
                    log.write(f'192.0.2.1 - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "{method} {path} HTTP/1.1" {status} {size} "-" "x"\n')
                else:
                    line = {"time": at.isoformat(), "method": method, "host": f"H{url % 5}.example",
                            "uri": f"/{url}.css?v={url % 3}", "status": status, "bytes": url * 13,
                            "cache": ["HIT", "MISS", "BYPASS"][url % 3]}
                    log.write(json.dumps(line) + "\n")
            log.write("junk\n")


def query(name):
    return (SQL / f"{name}.sql").read_text()


def duckdb_engine(folder):
    import duckdb
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW requests AS FROM read_parquet('{folder}/*/*.parquet', hive_partitioning = true)")
    return lambda sql: connection.execute(sql).fetchall()


def datafusion_engine(folder):
    import datafusion
    context = datafusion.SessionContext()
    context.sql(f"CREATE EXTERNAL TABLE requests STORED AS PARQUET LOCATION '{folder}/'")

    def run(sql):
        table = context.sql(sql).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns)))
    return run


def spark_engine(folder):
    from pyspark.sql import SparkSession
    session = (SparkSession.builder.master("local[2]").appName("edgeward")
               .config("spark.sql.session.timeZone", "UTC")
               .config("spark.ui.enabled", "false")
               .config("spark.sql.shuffle.partitions", "4")
               .config("spark.driver.memory", "1g")
               .config("spark.driver.bindAddress", "127.0.0.1")
               .config("spark.driver.host", "127.0.0.1").getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    session.read.parquet(str(folder)).createOrReplaceTempView("requests")

    def run(sql):
        # As Python values, times without a zone would be in the zone of this machine. As text they stay in UTC.
        frame = session.sql(sql)
        times = [name for name, kind in frame.dtypes if kind.startswith("timestamp")]
        for name in times:
            frame = frame.withColumn(name, frame[name].cast("string"))
        return [tuple(row) for row in frame.collect()]
    return run


def plain(value):
    """Returns a value in the form in which the engines are compared: times as text in UTC, other values unchanged."""
    if isinstance(value, datetime.datetime):
        value = value.astimezone(UTC) if value.tzinfo else value
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, str) and len(value) == 19 and value[4] == "-" and value[10] == " ":
        return value.replace(" ", "T") + "Z"
    return value


def named(rows):
    return [(row["name"], row["requests"], row["bytes"], row["hits"], row["misses"]) for row in rows]


def expected(report):
    """Returns the rows that each query must return, computed from the JSON document."""
    storable = report["storable"]
    answers = {
        "counts": [(report["requests"], report["urls"], report["once"])],
        "requests_per_url": [(row["requests"], row["urls"]) for row in report["requests_per_url"]],
        "top": [(row["url"].lower(), row["requests"], row["bytes"]) for row in report["top"][:10]],
        "hours": [tuple(row[key] for key in ("from", "requests", "bytes", "hits", "misses", "passes"))
                  for row in report["hours"]],
        "statuses": named(report["statuses"]),
        "storable": [tuple(storable[key] for key in ("objects", "bytes", "once", "once_bytes"))],
        "span": [(report["from"], report["to"], report["bytes"])],
    }
    for table in ("methods", "hosts", "types", "machines"):
        assert report[table]["others"] is None and report[table]["undercount_max"] == 0, table
        # The document may list a host in upper and in lower case. In the Parquet files it is in lower case.
        sums = {}
        for name, *figures in named(report[table]["top"]):
            name = name.lower() if table == "hosts" else name
            sums[name] = [a + b for a, b in zip(sums.get(name, [0] * 4), figures)]
        answers[table] = [(name, *figures) for name, figures in sums.items()]
    return answers


def main():
    edgeward, *logs = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if not logs:
            make_logs(folder / "logs")
            logs = [str(folder / "logs")]

        def analyze(*options):
            command = [edgeward, "--quiet", "analyze", *logs, *options]
            return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

        analyze("--to-parquet", str(folder / "requests"))
        ours = expected(json.loads(analyze("--json", "--top", "500")))
        shipped = {path.stem for path in SQL.glob("*.sql")}
        assert shipped == set(ours), shipped ^ set(ours)
        wrong = 0
        for name, engine in (("DuckDB", duckdb_engine), ("DataFusion", datafusion_engine), ("Spark", spark_engine)):
            run = engine(folder / "requests")
            for table in sorted(ours):
                found = [tuple(plain(value) for value in row) for row in run(query(table))]
                wanted = ours[table]
                if table not in ("top", "hours", "requests_per_url"):
                    found, wanted = sorted(found), sorted(wanted)
                if found != wanted:
                    wrong += 1
                    print(f"{name}, {table}: {found[:12]}\n  and edgeward: {wanted[:12]}")
            print(f"{name}: {len(ours)} queries")
    sys.exit(1 if wrong else 0)


main()
