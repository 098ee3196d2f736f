import subprocess
import sys

import pytest

HEAVY = "torch", "transformers", "safetensors", "gguf"


@pytest.mark.parametrize(
    "module",
    [
        "engines.wiring",
        "engines.gang.supervisor",
        "engines.gang.rank",
        "engines.gang.external_rank",
        "gateway.cli.rank",
        "engines.face.server",
        "engines.face.client",
        "engines.fake",
        "engines.models.catalog",
    ],
)
def test_nothing_before_a_rank_imports_torch(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
