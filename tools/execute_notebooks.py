"""Execute the notebooks of examples/ in place: ``python tools/execute_notebooks.py [NAME ...]``.

After a change of predictions their outputs are no longer what they compute, and a test says so.
"""

import resource
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def execute(path: Path) -> float:
    """Execute a notebook, write it, and say how much CPU time its kernel took. [s]"""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Execute the named notebooks, or all, and say which took longest."""
    names = sys.argv[1:]
    paths = [path for path in sorted(EXAMPLES.glob("*.ipynb")) if not names or path.stem in names]
    seconds = {path.stem: execute(path) for path in paths}
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        sys.stdout.write(f"{seconds[name]:5.1f} s of CPU  {name}\n")
    sys.stdout.write(f"{sum(seconds.values()):5.1f} s of CPU  all\n")


if __name__ == "__main__":
    main()
