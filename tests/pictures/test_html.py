"""Pages: one file that fetches nothing, in which text is text."""

import re

import pytest
from PIL import Image

from axial_transformers.pictures.html import Section, figure, write_page


def fetched(page: str) -> list[str]:
    """What a page names that a browser would load, or run."""
    sources = [each for each in re.findall(r'(?:src|href)="([^"]*)"', page) if not each.startswith("data:image/")]
    return sources + re.findall(r"https?:|@import|url\(|<script|<link|srcset", page)


@pytest.fixture
def written(tmp_path):
    def write(*sections: Section) -> str:
        write_page(tmp_path / "page.html", "<b>run</b>", sections)
        return (tmp_path / "page.html").read_text()

    return write


def test_each_part_is_there_and_text_is_escaped(written):
    section = Section(
        title="<i>title</i>",
        text="`<code>` & text",
        curves={"<name>": [(0, 1.0), (10, 3.0), (20, 2.0)]},
        facts={"<fact>": "a `<value>`"},
        rows=[{"<head>": "`<cell>`"}, {"<head>": 0.5}],
        images=[figure(Image.new("L", (2, 3)), '"caption"')],
    )
    page = written(section)
    for text in (
        "<title>&lt;b&gt;run&lt;/b&gt;</title>", "<h2>&lt;i&gt;title&lt;/i&gt;</h2>",
        "<code>&lt;code&gt;</code> &amp; text", "&lt;name&gt;</span>",
        "<tr><td>&lt;fact&gt;</td><td>a <code>&lt;value&gt;</code></td></tr>", "<th>&lt;head&gt;</th>",
        "<td><code>&lt;cell&gt;</code></td>", "<td>0.5</td>", "<figcaption>&#34;caption&#34;</figcaption>",
        "<span>step 0</span><span>20</span>",
    ):  # fmt: skip
        assert text in page
    assert fetched(page) == []
    assert re.findall(r' d="M([^"]*)"', page) == ["0.00,100.00 50.00,0.00 100.00,50.00 h.01"]


def test_high_values_are_drawn_at_the_upper_edge(written):
    points = [(step, 1.0 + step % 2) for step in range(99)]
    (line,) = re.findall(r' d="M([^"]*) h', written(Section(curves={"loss": [*points, (99, 1e9)]})))
    assert {point.split(",")[1] for point in line.split()} == {"0.00", "100.00"}


@pytest.mark.parametrize("points", [[(3, 2.0)], [(0, 0.0), (1, 0.0)]])
def test_a_curve_without_a_range_is_drawn(written, points):
    assert "nan" not in written(Section(curves={"loss": points}))


def test_a_section_without_content_is_left_out(written):
    assert "<h2>" not in written(Section(title="empty", text="nothing below"))
