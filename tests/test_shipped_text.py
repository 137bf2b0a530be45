"""What is shipped names the public literature, no file or tool of the place where it was written."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
OF_THE_WORKPLACE = re.compile(
    r"(?<![\w.}])/(?:work|home|root|mnt)/\w|\.\./[a-z]+/[A-Z]{5,}|\b(?:DESIGN|REFERENCE|PHYSICS)\b"
)
SHIPPED = sorted(
    path
    for top in ("perfmodel", "hardware_specs", "docs", "tools", "benchmarks", "examples", "README.md",
                "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml")
    for path in ([ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*"))
    if path.suffix in (".py", ".toml", ".md", ".csv", ".txt") and "__pycache__" not in path.parts
)  # fmt: skip


def test_no_local_path_or_tool_is_named():
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in SHIPPED
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_THE_WORKPLACE.search(line)
    ]
    assert not hits, "\n".join(hits)


def test_there_is_something_to_read():
    assert len(SHIPPED) > 150
