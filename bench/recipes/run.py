#!/usr/bin/env python3
"""Installs packages twice through an edge, with the configuration of docs/how-to/registries.md and the real clients.

Usage: bench/recipes/run.py EDGEWARD

The upstreams are environment variables: UPSTREAM_NPM, UPSTREAM_GO, UPSTREAM_MAVEN, UPSTREAM_DEBIAN, UPSTREAM_PIP,
UPSTREAM_PIP_FILES, UPSTREAM_CARGO, UPSTREAM_CARGO_FILES (URLs without a path, as the registry writes them in its index).
The registry of OCI images is registry.py, so it needs no variable.
A client without an upstream, or that is not installed, is skipped. A site has an address of 127.0.1.0/24 in addition to
its name, so that no name has to be resolved.

Each client has empty caches in both runs. Prints one JSON object for each client and run: the bytes that the client got,
and how many of them the edge sent without its origin (a hit, or a body that the origin validated with 304). Exits with 1
if the second run has less than 95 % of such bytes.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from registry import Registry

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARE_MIN = 0.95
CLIENTS = ["npm", "go", "maven", "debian", "pip", "cargo", "oci"]
SITES = CLIENTS + ["oci-blobs"]
PLACEHOLDERS = {
    "npm": "https://npm-registry.example",
    "go": "https://go-proxy.example",
    "maven": "https://maven-repository.example",
    "debian": "http://debian-mirror.example",
    "pip": "https://python-index.example",
    "pip-files": "https://python-files.example",
    "cargo": "https://cargo-index.example",
    "cargo-files": "https://cargo-files.example",
    "oci": "https://oci-registry.example",
    "oci-blobs": "https://oci-blobs.example",
}


def address(site):
    return "127.0.1.%d" % (SITES.index(site) + 1)


def upstream(origin):
    return os.environ.get("UPSTREAM_" + origin.upper().replace("-", "_"))


def is_available(client):
    needed = [name for name in PLACEHOLDERS if name == client or name == client + "-files"]
    return all(upstream(name) for name in needed) and program(client)


def configuration(folder, port):
    page = open(os.path.join(ROOT, "docs/how-to/registries.md")).read()
    text = re.search(r"```toml\n(.*?)```", page, re.S).group(1)
    text = text.replace("0.0.0.0:8080", "0.0.0.0:%d" % port).replace('"50GiB"', '"4GiB"')
    text = text.replace("oci-blobs.example.org:8080", "%s:%d" % (address("oci-blobs"), port))
    for origin, placeholder in PLACEHOLDERS.items():
        text = text.replace(placeholder, upstream(origin) or "http://127.0.0.1:9")
    for site in SITES:
        text = text.replace('"%s.example.org"' % site, '"%s.example.org", "%s"' % (site, address(site)))
    return text + '\n[access_log]\npath = "access.log"\nformat = "json"\n'


def install(client, folder, port):
    """Returns the command and the additional environment of a client whose caches are in the folder."""
    url = "http://%s:%d" % (address(client), port)
    home = {"HOME": folder, "PATH": os.environ["PATH"]}
    if client == "npm":
        return ["npm", "install", "--prefix", folder, "--cache", folder + "/cache", "--registry", url + "/",
                "--replace-registry-host", "always", "--no-audit", "--no-fund", "express@4", "typescript@5"], home
    if client == "go":
        open(folder + "/go.mod", "w").write("module example.org/x\n\ngo 1.21\n")
        return ["go", "mod", "download", "github.com/google/uuid@v1.6.0", "golang.org/x/text@v0.14.0",
                "google.golang.org/protobuf@v1.33.0"], {**home, "GOPROXY": url, "GONOSUMDB": "*", "GONOSUMCHECK": "1",
                                                        "GOFLAGS": "-mod=mod -modcacherw", "GOPATH": folder + "/gopath"}
    if client == "maven":
        settings = ("<settings><localRepository>%s/repository</localRepository><mirrors><mirror><id>edge</id>"
                    "<mirrorOf>*</mirrorOf><url>%s/maven2</url></mirror></mirrors></settings>" % (folder, url))
        open(folder + "/settings.xml", "w").write(settings)
        return ["mvn", "--batch-mode", "--quiet", "--settings", folder + "/settings.xml",
                "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get",
                "-Dartifact=com.google.guava:guava:33.0.0-jre"], {**home, "JAVA_HOME": os.environ.get("JAVA_HOME", "")}
    if client == "pip":
        return [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
                "--trusted-host", address(client), "--index-url", url + "/simple/", "--dest", folder + "/packages",
                "flask==3.0.3", "requests==2.32.3", "cryptography==43.0.1"], home
    if client == "cargo":
        for name in ("cargo", "x/src"):
            os.makedirs(folder + "/" + name)
        open(folder + "/cargo/config.toml", "w").write(
            '[source.crates-io]\nreplace-with = "edge"\n[source.edge]\nregistry = "sparse+%s/"\n' % url)
        open(folder + "/x/src/lib.rs", "w").write("")
        open(folder + "/x/Cargo.toml", "w").write(
            '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
            'serde = { version = "1.0.210", features = ["derive"] }\nregex = "1.10.6"\nhyper = "1.4.1"\n')
        rustup = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))
        return ["cargo", "fetch", "--quiet", "--manifest-path", folder + "/x/Cargo.toml"], {
            **home, "CARGO_HOME": folder + "/cargo", "RUSTUP_HOME": rustup}
    if client == "oci":
        copies = ["skopeo copy --insecure-policy --quiet --src-tls-verify=false docker://%s:%d/%s/app:1 dir:%s/%s"
                  % (address(client), port, repository, folder, repository) for repository in ("team", "public")]
        return ["sh", "-ec", "\n".join(copies)], home
    for name in ("lists/partial", "archives/partial", "etc"):
        os.makedirs(folder + "/" + name)
    open(folder + "/etc/sources.list", "w").write("deb %s/debian bookworm main\n" % url)
    options = []
    for key, value in {"Dir::State::lists": folder + "/lists", "Dir::Cache::archives": folder + "/archives",
                       "Dir::Etc::sourcelist": folder + "/etc/sources.list", "Dir::Etc::sourceparts": "-",
                       "Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": "", "APT::Sandbox::User": "root"}.items():
        options += ["-o", "%s=%s" % (key, value)]
    apt = ["apt-get", "-q"] + options
    script = " ".join("'%s'" % word for word in apt)
    return ["sh", "-c", "%s update && cd %s && %s download hello cowsay tree" % (script, folder, script)], home


def program(client):
    names = {"maven": "mvn", "debian": "apt-get", "pip": sys.executable, "oci": "skopeo"}
    return shutil.which(names.get(client, client))


def main():
    edgeward = os.path.abspath(sys.argv[1])
    port = 18080
    failed = False
    registry = Registry("127.0.2.1")
    os.environ["UPSTREAM_OCI"], os.environ["UPSTREAM_OCI_BLOBS"] = registry.registry, registry.blobs
    with tempfile.TemporaryDirectory() as folder:
        open(folder + "/edge.toml", "w").write(configuration(folder, port))
        edge = subprocess.Popen([edgeward, "serve", "--config", "edge.toml"], cwd=folder,
                                stdout=subprocess.DEVNULL, stderr=open(folder + "/edge.err", "w"))
        try:
            wait_for(port, edge, folder)
            for client in CLIENTS:
                if not is_available(client):
                    print("skipped: %s has no upstream, or is not installed" % client, file=sys.stderr)
                    continue
                for run in (1, 2):
                    result = measure(client, run, folder, port)
                    print(json.dumps(result), flush=True)
                    failed |= run == 2 and result["from_cache"] < SHARE_MIN
        finally:
            edge.send_signal(signal.SIGTERM)
            edge.wait(60)
    sys.exit(1 if failed else 0)


def wait_for(port, edge, folder):
    for _ in range(100):
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/" % port)
        except urllib.error.HTTPError:
            return
        except OSError:
            if edge.poll() is not None:
                sys.exit(open(folder + "/edge.err").read())
            time.sleep(0.1)
    sys.exit("the edge does not listen")


def measure(client, run, folder, port):
    log = folder + "/access.log"
    start = os.path.getsize(log) if os.path.exists(log) else 0
    home = tempfile.mkdtemp(dir=folder)
    command, environment = install(client, home, port)
    began = time.monotonic()
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=900)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        sys.exit("%s failed:\n%s%s" % (client, done.stdout[-2000:], done.stderr[-2000:]))
    time.sleep(1.5)  # the access log is written at intervals
    lines = [json.loads(line) for line in open(log).read()[start:].splitlines()]
    hosts = [address(site) + ":" for site in SITES if site == client or site == client + "-blobs"]
    lines = [line for line in lines if line["host"].startswith(tuple(hosts))]
    total = sum(line["bytes"] for line in lines)
    origin = sum(line["bytes"] for line in lines if not is_from_cache(line))
    others = {}
    for line in lines:
        key = line["cache"] + ("/" + line["detail"] if "detail" in line else "")
        others[key] = others.get(key, 0) + 1
    shutil.rmtree(home, ignore_errors=True)
    return {"client": client, "run": run, "requests": len(lines), "bytes": total,
            "from_cache": round((total - origin) / total, 4) if total else 0.0, "seconds": round(seconds, 1),
            "requests_by_cache": others}


def is_from_cache(line):
    # A stale response that the origin validated has the cache's body.
    return line["cache"] == "hit" or line["cache"] == "stale" and line.get("detail") is None and line["status"] in (200, 304)


main()
