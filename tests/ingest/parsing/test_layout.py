"""docling takes PDF and Word files where it is asked for, and is missed in a sentence."""

import io
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from ingest.api import PermanentError
from ingest.parsing.choice import ParserChoice, parser_module
from ingest.parsing.parsed import Heading, ParseLimits
from ingest.parsing.sandbox import Sandbox
from ingest.settings import settings_from
from ingest.wiring import open_sandbox, serve_ingest
from tests.ingest.parsing.office_files import docx_bytes

CONVERTER = """
from types import SimpleNamespace
from docling.datamodel.base_models import ConversionStatus

class DocumentConverter:
    def convert(self, source, raises_on_error):
        ends = {b"whole": ConversionStatus.SUCCESS, b"part": ConversionStatus.PARTIAL_SUCCESS}
        words = source.stream.read()
        status = next((ends[key] for key in ends if key in words), ConversionStatus.FAILURE)
        document = SimpleNamespace(
            export_to_markdown=lambda page_break_placeholder: "# One\\n\\n\\f\\n\\n| a | b |\\n"
        )
        errors = [SimpleNamespace(error_message="page 3 ran out of memory")]
        return SimpleNamespace(status=status, document=document, errors=errors)
"""
MODELS = """
from dataclasses import dataclass
from enum import Enum
from io import BytesIO

class ConversionStatus(str, Enum):
    FAILURE, SUCCESS, PARTIAL_SUCCESS = "failure", "success", "partial_success"

@dataclass
class DocumentStream:
    name: str
    stream: BytesIO
"""


@pytest.mark.skipif(find_spec("docling") is not None, reason="docling is installed here")
def test_its_absence_is_told_before_anything_starts() -> None:
    with pytest.raises(ValueError, match=r"is not installed: `pip install 'ringway\[layout\]'`"):
        parser_module(ParserChoice.DOCLING)


@pytest.mark.skipif(find_spec("docling") is not None, reason="docling is installed here")
async def test_a_worker_without_it_does_not_start(tmp_path: Path) -> None:
    settings = settings_from({"RINGWAY_INGEST_PARSER": "docling"}, data_dir=tmp_path / "data")
    with pytest.raises(ValueError, match="needs docling, which is not installed"):
        await serve_ingest(settings, never)
    assert not settings.data_dir.exists()


async def never(app: ASGIApp) -> None:
    raise AssertionError("a worker without its parser must not serve")


@pytest.mark.usefixtures("fake_docling")
async def test_the_setting_chooses_parser_and_memory(tmp_path: Path) -> None:
    settings = settings_from({"RINGWAY_INGEST_PARSER": "docling"}, data_dir=tmp_path)
    path = tmp_path / "upload"
    path.write_bytes(named_docx("whole"))
    async with open_sandbox(settings) as sandbox:
        assert (await sandbox.read(path, "a.docx")).notes == ["Read with docling: 16 characters."]
    own = settings_from({}, data_dir=tmp_path)
    set_by_hand = settings_from(
        {"RINGWAY_INGEST_PARSE_MEMORY_BYTES": "5000000000"}, data_dir=tmp_path
    )
    limits = [each.parser_bytes for each in (own, settings, set_by_hand)]
    assert limits == [2 << 30, 16 << 30, 5_000_000_000]


def test_our_own_parsers_need_no_docling_and_none_of_their_test_libraries() -> None:
    script = (
        "import sys, ingest.parsing.registry; others = {'docling', 'docx', 'pptx', 'openpyxl'}; "
        "sys.exit(' '.join({*others, 'lxml'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert parser_module(ParserChoice.OWN) == "ingest.parsing.registry"


@pytest.fixture
def fake_docling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docling's names as its documentation gives them."""
    package = tmp_path / "path" / "docling"
    (package / "datamodel").mkdir(parents=True)
    for name, source in (
        ("__init__.py", ""),
        ("datamodel/__init__.py", ""),
        ("document_converter.py", CONVERTER),
        ("datamodel/base_models.py", MODELS),
    ):
        (package / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "path")


@pytest.mark.usefixtures("fake_docling")
async def test_it_reads_in_the_sandbox_and_what_it_leaves_out_is_told(tmp_path: Path) -> None:
    path = tmp_path / "upload"
    async with Sandbox(ParseLimits(), parser=parser_module(ParserChoice.DOCLING)) as sandbox:
        path.write_text("text")
        assert (await sandbox.read(path, "a.txt")).text == "text"
        for word in ("whole", "part"):
            path.write_bytes(named_docx(word))
            parsed = await sandbox.read(path, "a.docx")
            assert (parsed.text, parsed.outline) == ("# One\n\n| a | b |", [Heading(0, 1, "One")])
            left_out = ["docling did not read all of it: page 3 ran out of memory."]
            assert parsed.notes[1:] == (left_out if word == "part" else [])
        path.write_bytes(named_docx("none"))
        with pytest.raises(PermanentError, match="docling cannot read the file: page 3 ran out"):
            await sandbox.read(path, "a.docx")
        path.write_bytes(b"%PDF-1.4\nwhole")
        with pytest.raises(PermanentError, match="says that it is a PDF, but it is broken"):
            await sandbox.read(path, "a.pdf")


def named_docx(word: str) -> bytes:
    """A Word file whose bytes hold the word that the fake looks for."""
    buffer = io.BytesIO(docx_bytes(lambda document: None))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = word.encode()
    return buffer.getvalue()
