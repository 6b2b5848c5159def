#!/usr/bin/env python3
"""Times how long an edge needs to read a configuration with many sites.

Usage: bench/sites/run.py EDGEWARD [SITES [RULES [RUNS]]]    (1000 sites, 20 rules each, 7 runs by default)

Writes bench/scratch/sites.toml and runs `EDGEWARD check-config` on it, which reads and checks the file as `serve`
does. Prints one JSON object for each run: the size of the file, elapsed and CPU seconds, the largest memory. The rules
are those of docs/how-to/sites.md, with the number of the site in their values, so that most values differ between sites.
"""
import json
import os
import resource
import subprocess
import sys
import time

RULES = [
    'path = "/static/{n}/*"\nttl = "7d"',
    'path = ["/wp-content/*", "/wp-includes/*", "/s{n}/*"]\nttl = {{ 200 = "30d", 404 = "1min", 5xx = "5s" }}',
    'cookie = ["wordpress_logged_in_*", "session_{n}"]\npass = true\norigin_response.keep = ["Set-Cookie"]',
    'path = ["/wp-admin/*", "/wp-login.php"]\ndeny = true',
    'path = ["/wp-admin/*", "/wp-login.php"]\nclient = ["10.{a}.{b}.0/24", "2001:db8:{n}::/48"]\ndeny = false',
    'path = "/wp-login.php"\nmethod = "POST"\nrate_limit = "10/min"\nrate_limit_burst = 5',
    "path_regex = '\\.(png|jpe?g|gif|webp|avif)$'\nkey = [\"image-format\"]",
    "path_regex = '^/shop-{n}/(.*)$'\nrewrite = \"/apps/shop/{n}/${{1}}\"",
    'scheme = "http"\nredirect = "https://${{host}}${{uri}}"\nredirect_status = 301',
    'method = ["GET", "HEAD"]\ndefault_ttl = "10min"\nstale_if_error = "1d"\nstale_while_revalidate = "1min"',
    'parameter = ["preview", "preview_{n}"]\npass = true',
    'header.X-Country = ["DE", "AT"]\nresponse.set.X-Site = "{n}"',
    'path = "/news/*"\nkey = ["device", "language:en,de,fr", "cookie:c{n}"]',
    'path = "/search"\nquery.sort = true\nquery.keep = ["q", "page", "filter_*"]',
    'query.drop = ["utm_*", "fbclid", "gclid"]',
    'path = "/api/{n}/*"\ncompression = false\nresponse.set = {{ Cache-Control = "no-store", X-Frame-Options = "DENY" }}',
    'path = "/video/*"\nstale_if_disconnected = "7d"',
    'path = "/old-{n}"\nredirect = "/new-{n}"',
    'response.remove = ["Server", "X-Powered-By"]\nrequest.set.X-Client = "${{client}}"',
    'header.Authorization = "*"\npass = true\nrate_limit = "{n}/h"\nrate_limit_by = "header:Authorization"',
]


def configuration(sites, rules):
    parts = ['[[listener]]\naddress = "127.0.0.1:0"\n\n[origin]\nurl = "http://127.0.0.1:9000"\n']
    for site in range(1, sites + 1):
        parts.append(f'\n[[site]]\nhosts = ["site-{site}.example", "*.site-{site}.example"]\nttl = "1h"\n')
        for rule in range(rules):
            text = RULES[rule % len(RULES)].format(n=site, a=site // 256 % 256, b=site % 256)
            parts.append(f"\n[[site.rule]]\n{text}\n")
    return "".join(parts)


def main():
    edgeward = sys.argv[1]
    sites, rules, runs = (int(text) for text in (sys.argv[2:] + ["1000", "20", "7"][len(sys.argv) - 2 :]))
    path = "bench/scratch/sites.toml"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(configuration(sites, rules))
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.monotonic()
        subprocess.run([edgeward, "check-config", path], check=True, stdout=subprocess.DEVNULL)
        elapsed = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result = {
            "sites": sites,
            "rules": rules,
            "file_bytes": os.path.getsize(path),
            "elapsed_s": round(elapsed, 3),
            "cpu_s": round(cpu, 3),
            "memory_mib": round(after.ru_maxrss / 1024, 1),
        }
        print(json.dumps(result), flush=True)


main()
