"""Pages are written for a tired reader: short sentences, the field's words, and not too many of them."""

import re
from collections.abc import Iterator
from tokenize import NAME, generate_tokens

import pytest

from tests.paths import ROOT

SOURCE = ROOT / "src" / "axial_transformers"
FOR_MAINTAINERS = {*ROOT.glob("docs/project/*.md")}
SITE = [*sorted({*ROOT.glob("docs/**/*.md")} - FOR_MAINTAINERS), *sorted(SOURCE.glob("pretrained/*/README.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *SITE]
MAX_WORDS, LONG, MAX_LONG = 35, 30, 0.05
"""Words of a sentence at most; words of a long one; share of long ones at most."""
WORDS_OF_README, WORDS_OF_SITE = 750, 24_000
UNWANTED = {
    r"verbs?": "command",
    r"pictures?": "image",
    r"figures(?! \d)": "metric, value",
    r"(?<!\()averaged weights": "EMA weights",
    r"processor time": "CPU time",
    r"places": "positions",
    r"twins?": "reference implementation",
    r"embedded digits": "bundled digits",
    r"(?<!complexity-)corrected score": "complexity-corrected score",
    r"is told so|is held|as of|so many": "who does what",
}
"""The left column of the glossary, as patterns, and the right one."""
UNWANTED_NAMES = (
    r"_?(MOST|LEAST|LONGEST|LARGEST|SMALLEST)(_\w+)?|(\w*_)?(sites?|figures|standing|way_out)(_\w+)?|_?places?"
)


def prose(text: str) -> str:
    """Return a page without code, comments, pictures, formulas and addresses, a paragraph for each cell and item."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$|<[^>]+>", " ", text, flags=re.DOTALL)
    text = re.sub(r"^:::.*$(\n {4}.*$)*", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\n\n\1.\n\n", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"^\s*(#+|[-*+]|\d+\.|>)\s", "\n\n", text, flags=re.MULTILINE)
    return text.replace("|", "\n\n")


def sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", prose(text)):
        for each in re.split(r"(?<=[.!?:;])[*_)\"']*\s+", paragraph.strip()):
            if re.search(r"[a-zA-Z]", each):
                yield " ".join(each.split())


def words(text: str) -> int:
    return sum(len(each.split()) for each in sentences(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short_and_words_are_those_of_the_field(page):
    found = [*sentences(page.read_text())]
    assert [each for each in found if len(each.split()) > MAX_WORDS] == []
    unwanted = [
        (each, instead)
        for each in found
        for pattern, instead in UNWANTED.items()
        if re.search(rf"\b({pattern})\b", each, re.IGNORECASE)
    ]
    assert unwanted == []


def test_few_sentences_are_long():
    lengths = [len(each.split()) for page in PAGES for each in sentences(page.read_text())]
    assert sum(length > LONG for length in lengths) <= MAX_LONG * len(lengths)


def test_readme_is_one_screen_and_the_site_is_not_a_book():
    assert words((ROOT / "README.md").read_text()) <= WORDS_OF_README
    assert sum(words(page.read_text()) for page in SITE) <= WORDS_OF_SITE


def test_names_in_the_code_are_words_of_the_glossary():
    lines = (path.read_text().splitlines(keepends=True) for path in SOURCE.rglob("*.py"))
    names = {token.string for each in lines for token in generate_tokens(iter(each).__next__) if token.type == NAME}
    assert {name for name in names if re.fullmatch(UNWANTED_NAMES, name)} == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two. Three `a b c` four!", ["One two.", "Three code four!"]),
        ("```sh\nnot this\n```\n- an item\n- another one", ["an item", "another one"]),
        ("| a b | c |\n|---|---|\n| d [e](http://x.y) | 3 |", ["a b", "c", "d e"]),
    ],
)
def test_prose_is_found(text, expected):
    assert [*sentences(text)] == expected
