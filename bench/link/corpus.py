#!/usr/bin/env python3
"""Fetches three successive versions of packages into FOLDER/1 to FOLDER/3, as tar files: corpus.py FOLDER [--few]

The packages are unpacked and packed again with sorted names and without owners and times, so that two tar files differ
only in the content of their files. `--few` fetches Django and TypeScript only. Files that exist are kept.
"""
import pathlib
import shutil
import subprocess
import sys

PACKAGES = [
    ("django", "pip", "Django", ["5.2.5", "5.2.6", "5.2.7"]),
    ("typescript", "npm", "typescript", ["5.8.3", "5.9.2", "5.9.3"]),
    ("api-descriptions", "pip", "google-api-python-client", ["2.181.0", "2.182.0", "2.183.0"]),
    ("numpy", "pip", "numpy", ["2.3.2", "2.3.3", "2.3.4"]),
]
PIP = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--only-binary",
       ":all:", "--python-version", "3.12", "--platform", "manylinux_2_28_x86_64", "--dest", "."]


def run(*command, folder=None):
    subprocess.run(list(map(str, command)), cwd=folder, check=True, timeout=300, stdout=subprocess.DEVNULL)


def fetch(client, registered, version, work):
    packed, tree = work / "packed", work / "tree"
    packed.mkdir(parents=True)
    tree.mkdir()
    if client == "pip":
        run(*PIP, f"{registered}=={version}", folder=packed)
        run(sys.executable, "-m", "zipfile", "-e", next(packed.iterdir()), tree)
    else:
        run("npm", "pack", "--silent", f"{registered}@{version}", folder=packed)
        run("tar", "-xzf", next(packed.iterdir()), "-C", tree)
    run("tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX",
        "--format=ustar", "-cf", work / "tar", "-C", tree, ".")


def main():
    folder = pathlib.Path(sys.argv[1])
    packages = PACKAGES[:2] if "--few" in sys.argv else PACKAGES
    for name, client, registered, versions in packages:
        for number, version in enumerate(versions, 1):
            tar, work = folder / str(number) / f"{name}.tar", folder / "work"
            if tar.exists():
                continue
            print(f"fetching {registered} {version}", file=sys.stderr)
            tar.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(work, ignore_errors=True)
            fetch(client, registered, version, work)
            (work / "tar").rename(tar)
            shutil.rmtree(work)


main()
