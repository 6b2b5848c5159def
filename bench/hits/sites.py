#!/usr/bin/env python3
"""Writes the configuration of SITES sites with the rules of site.toml twice: sites.py SITES FILE"""
import pathlib
import sys

sites = int(sys.argv[1])
template = (pathlib.Path(__file__).parent / "site.toml").read_text()
site, rules = template.split("[[site.rule]]", 1)
site += 2 * ("[[site.rule]]" + rules)
with open(sys.argv[2], "w") as out:
    for n in range(1, sites + 1):
        hosts = '"*"' if n == sites else f'"site-{n}.example", "*.site-{n}.example"'
        out.write(site.replace("%HOSTS%", hosts).replace("%N%", str(n % 250)))
