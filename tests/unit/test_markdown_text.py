"""Pages of Markdown: what is special there is not lost, and nothing of a table's text becomes markup."""

import re

from markdown_text import grid, page_of, with_block

HOSTILE = "<script>alert(1)</script>|a$b_{ & \"'</td>--> [red]"
"""A printable name that is markup somewhere."""

BLOCKS = [
    f"# {HOSTILE}",
    "Errors are |a / b - 1|; 3 < 4",
    grid((HOSTILE, "log|error|"), [("a|b", "two\nlines"), ("\x1b[31m", "<!--")], strong={0}),
    f"![{HOSTILE}](folder/picture.png)",
]


def test_tables_keep_their_columns():
    lines = [line for line in page_of(BLOCKS).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3] * 4
    assert lines[2].startswith("| **a\\|b** |")


def test_names_are_shown_as_text():
    page = page_of(BLOCKS)
    assert not re.search(r"<[A-Za-z/!]", page)
    assert "\x1b" not in page
    assert "3 < 4" in page


def test_a_block_takes_the_place_of_the_one_before():
    page = "a\n<!-- x:start -->\nold\n<!-- x:end -->\nb"
    assert with_block(page, "x", "new") == page.replace("old", "new")
