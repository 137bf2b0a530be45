"""Pages: what is special in Markdown or HTML is not lost, and nothing of a table's text becomes markup."""

from html.parser import HTMLParser

from perfmodel.presentation.tables import Bullets, Grid, Heading, Paragraph, Picture, html_page, markdown_page

BLOCKS = [
    Heading("Scores & more", 1),
    Paragraph("Errors are |a / b - 1|; `code` too; see [the page](a.md#b) and [no](javascript:x)."),
    Grid(("name", "log|error|"), [("a|b", "1.5"), ("<script>", "-")], strong=frozenset({0})),
    Bullets(("**one**: 3 < 4", "two"), numbered=True),
    Picture("folder/picture.png", 'a "picture"'),
]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_markdown_tables_keep_their_columns():
    lines = markdown_page(BLOCKS).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {3}
    assert table[2].startswith("| **a\\|b** |")


def test_html_is_well_formed_and_escaped():
    text = html_page(BLOCKS, title="a < b")
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "&lt;script&gt;" in text
    assert "<title>a &lt; b</title>" in text
    assert '<td class="number">1.5</td>' in text
    assert "<code>code</code>" in text
    assert '<a href="a.md#b">the page</a>' in text
    assert "<a" not in text.split("the page</a>")[1]
    assert "<strong>one</strong>: 3 &lt; 4" in text
    assert 'alt="a &quot;picture&quot;"' in text
