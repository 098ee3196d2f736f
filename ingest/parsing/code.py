"""Where the definitions of a source file stand, so that a chunk can be filed under its function.

Knows how common languages begin a definition; parses none of them.
"""

import re

from ingest.parsing.parsed import Heading

SUFFIX_NAMES = (
    "py pyi js jsx mjs cjs ts tsx java kt kts scala go rs c h cc cpp cxx hpp cs swift rb php lua "
    "pl pm r jl dart groovy sh bash zsh ps1 sql ex exs erl hs ml fs vb"
)
SUFFIXES = frozenset(f".{name}" for name in SUFFIX_NAMES.split())
TAB_WIDTH = 4
MAX_LEVEL = 4
MODIFIERS = (
    r"(?:(?:export|default|pub(?:\([^)\n]{0,40}\))?|public|private|protected|internal|static|final|"
    r"abstract|async|override|open|sealed|unsafe|extern|inline|virtual|partial|data)\s+){0,6}"
)
KEYWORDS = (
    "class|def|defmodule|fn|func|fun|function|interface|trait|struct|enum|impl|mod|module|"
    "namespace|object|protocol|record|sub|type"
)
DEFINITION = re.compile(
    rf"^([ \t]{{0,40}})({MODIFIERS}(?:{KEYWORDS})\b[ \t*]*[^\n{{;=]{{1,200}})", re.M
)


def code_outline(text: str) -> list[Heading]:
    """A definition's level is how far it is indented."""
    headings, open_widths = list[Heading](), list[int]()
    for found in DEFINITION.finditer(text):
        title = found[2].rstrip().rstrip(":").rstrip()
        width = len(found[1].expandtabs(TAB_WIDTH))
        while open_widths and open_widths[-1] >= width:
            open_widths.pop()
        if len(open_widths) < MAX_LEVEL:
            open_widths.append(width)
            headings.append(Heading(found.start(), len(open_widths), title))
    return headings
