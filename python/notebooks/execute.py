"""Runs a notebook in a folder, which gets the notebook with its outputs, and the figures as PNG files.

usage: python execute.py NOTEBOOK FOLDER
"""

import base64
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(source: Path, folder: Path) -> list[Path]:
    """Runs the notebook. Returns the figures: ``NAME.png`` for a cell with the tag NAME."""
    notebook = nbformat.read(source, as_version=4)
    folder.mkdir(parents=True, exist_ok=True)
    where = {"metadata": {"path": folder}}
    # The kernel warns that it listens on TCP, which is on loopback here.
    quiet = ["--log-level=ERROR"]
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where, extra_arguments=quiet).execute()
    nbformat.write(notebook, folder / source.name)
    figures = []
    for cell in notebook.cells:
        images = [output["data"].get("image/png") for output in cell.get("outputs", []) if "data" in output]
        for image in filter(None, images):
            figure = folder / f"{cell.metadata.tags[0]}.png"
            figure.write_bytes(base64.b64decode(image))
            figures.append(figure)
    return figures


if __name__ == "__main__":
    for figure in execute(Path(sys.argv[1]), Path(sys.argv[2])):
        print(figure)
