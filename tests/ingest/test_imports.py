"""What the gateway imports of ingest is light."""

import subprocess
import sys

HEAVY = (
    "torch transformers sentence_transformers lancedb pyarrow pypdfium2 selectolax "
    "charset_normalizer"
)
SCRIPT = f"""
import sys
import ingest.api, ingest.client, ingest.library_wiring, ingest.fake
found = [name for name in {HEAVY!r}.split() if name in sys.modules]
sys.exit(" ".join(found) or 0)
"""


def test_the_librarys_side_imports_no_model_no_index_and_no_parser() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_parser_process_imports_no_model_and_no_index() -> None:
    script = SCRIPT.replace(
        "ingest.api, ingest.client, ingest.library_wiring, ingest.fake",
        "ingest.parsing.template, ingest.parsing.registry",
    ).replace("pypdfium2 selectolax charset_normalizer", "sqlalchemy obstore")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
