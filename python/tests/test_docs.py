"""The commands and the script of the documentation run as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import optional

PAGES = Path(__file__).parent.parent.parent / "docs" / "how-to"


def block(page: str, language: str) -> str:
    """Returns the first block of code in this language."""
    return re.search(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[1]


@pytest.fixture
def folder(trace, tmp_path, monkeypatch) -> Path:
    """An empty folder with an access log, and no display."""
    trace.write(tmp_path / "access.log")
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


def test_ten_lines_of_python_lead_to_a_figure(folder):
    optional("pandas")
    optional("matplotlib")
    script = block("python.md", "python")
    assert 1 < len(script.splitlines()) <= 10
    (folder / "figure.py").write_text(script)
    subprocess.run([sys.executable, "figure.py"], cwd=folder, check=True, timeout=600)
    assert (folder / "figure.png").stat().st_size > 10_000


def test_five_commands_lead_from_an_access_log_to_a_figure(edgeward, folder):
    commands = block("figure.md", "sh")
    assert 1 < len(commands.replace("\\\n", "").splitlines()) <= 5
    path = f"{Path(os.environ['EDGEWARD']).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-e"], input=commands, text=True, cwd=folder, check=True, timeout=600, env={"PATH": path})
    assert "<svg" in (folder / "figures.html").read_text()
