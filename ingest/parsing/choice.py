"""Which module the sandbox's parser process runs. Knows names only, imports no parser."""

from enum import StrEnum
from importlib.util import find_spec


class ParserChoice(StrEnum):
    OWN = "own"
    DOCLING = "docling"
    """PDF and Word files by docling, which finds columns, tables and scanned text; slower."""


MODULES = {
    ParserChoice.OWN: "ingest.parsing.registry",
    ParserChoice.DOCLING: "ingest.parsing.layout",
}

MEMORY_BYTES = {ParserChoice.OWN: 2 << 30, ParserChoice.DOCLING: 16 << 30}
"""Address space of a parser unless it is set; torch maps several GiB that it never touches."""


def parser_module(choice: ParserChoice) -> str:
    """What `Sandbox` takes as `parser`. Raises ValueError when its package is not installed."""
    if choice is ParserChoice.DOCLING and find_spec("docling") is None:
        raise ValueError(
            "the parser 'docling' needs docling, which is not installed: "
            "`pip install 'ringway[layout]'`, "
            "or choose the parser 'own', which reads PDF and Word files without layout"
        )
    return MODULES[choice]
