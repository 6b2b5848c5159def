"""What several tests need: a small trace, the program `edgeward`, and optional packages."""

import importlib
import os
import subprocess
from pathlib import Path

import pytest
from edgeward_sim import Trace


@pytest.fixture(scope="session")
def trace() -> Trace:
    """20,000 requests of generated traffic."""
    return Trace.generate("web", 20_000, seed=7)


@pytest.fixture(scope="session")
def edgeward():
    """A function that runs the program and returns what it printed."""
    program = os.environ.get("EDGEWARD")
    if not program:
        pytest.skip("EDGEWARD does not name the program; `make test-python` sets it")

    def run(*arguments: object) -> str:
        command = [program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else done.stderr

    return run


@pytest.fixture(scope="session")
def files(tmp_path_factory, trace) -> Path:
    """A folder with the trace in the format of each extension."""
    folder = tmp_path_factory.mktemp("traces")
    for name in ("t.csv", "t.txt.zst", "t.oracleGeneral", "t.lrb.gz", "t.log"):
        trace.write(folder / name)
    return folder


def optional(name: str):
    """Returns a module. Without it, skips the test, or fails it if `make test` has installed all packages but Ray."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("EDGEWARD_REQUIRE_TOOLS") and name != "ray":
            raise
        pytest.skip(f"the package {name} is not installed")
