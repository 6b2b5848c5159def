"""The notebook runs, and each of its figures is a picture."""

import sys
from pathlib import Path

from conftest import optional

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def test_the_notebook_draws_its_figures(tmp_path, monkeypatch):
    optional("nbclient")
    optional("matplotlib")
    monkeypatch.syspath_prepend(NOTEBOOKS)
    import execute

    figures = execute.execute(NOTEBOOKS / "figures.ipynb", tmp_path)
    assert [figure.name for figure in figures] == ["policies.png", "sizes.png", "time.png", "parameter.png"]
    for figure in figures:
        assert figure.read_bytes().startswith(b"\x89PNG") and figure.stat().st_size > 10_000
    del sys.modules["execute"]
