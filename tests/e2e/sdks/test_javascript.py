"""JavaScript's `openai` and Vercel's `ai` against the gateway: one node process, judged here."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.sdks.conftest import KEY, SAID
from tests.gateway.fakes import Running

HERE = Path(__file__).parent / "js"
INSTALL_S = 120
RUN_S = 60


def installed(cache: Path) -> Path:
    """A folder with the locked packages; skips where npm cannot get them."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    folder = cache / "ringway-sdk-smoke"
    folder.mkdir(parents=True, exist_ok=True)
    lock = (HERE / "package-lock.json").read_text()
    done = folder / "installed.json"
    if not done.exists() or done.read_text() != lock:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(HERE / name, folder / name)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        told = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        if told.returncode != 0:
            pytest.skip(f"npm cannot reach its registry: {told.stderr[-300:]}")
        done.write_text(lock)
    shutil.copy(HERE / "smoke.mjs", folder / "smoke.mjs")
    return folder


def npm_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


@pytest.fixture(scope="module")
def results(gateway: Running) -> Mapping[str, Any]:
    folder = installed(npm_cache())
    told = subprocess.run(
        ["node", "smoke.mjs", f"{gateway.url}/v1", KEY],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found: Mapping[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(INSTALL_S + RUN_S)
def test_every_case_of_both_sdks_came_back_as_it_should(results: Mapping[str, Any]) -> None:
    failed = {name: one["failed"] for name, one in results.items() if "failed" in one}
    assert not failed, json.dumps(failed, indent=1)
    found = {name: one["ok"] for name, one in results.items()}
    lisbon = {"city": "Lisbon"}
    assert found["openai_chat"]["text"] == SAID
    assert found["openai_stream"]["text"] == found["openai_stream"]["whole"] == SAID
    assert found["openai_stream"]["tokens"] == found["openai_chat"]["tokens"] > 0
    assert found["openai_tools"] == {
        "reason": "tool_calls",
        "name": "get_weather",
        "arguments": lisbon,
    }
    assert found["openai_responses"] == {
        "text": SAID,
        "streamed": SAID,
        "last": "response.completed",
    }
    assert found["openai_embeddings"] == {
        "sizes": [64, 64],
        "tokens": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert found["openai_errors"] == {
        "key": {"status": 401, "code": "invalid_api_key", "is_api": True, "is_auth": True},
        "length": {
            "status": 400,
            "code": "context_length_exceeded",
            "is_api": True,
            "is_auth": False,
        },
    }
    assert found["ai_text"]["text"] == SAID
    assert found["ai_text"]["reason"] == "stop"
    assert found["ai_stream"]["text"] == SAID
    assert found["ai_stream"]["tokens"] == found["ai_text"]["tokens"] > 0
    assert found["ai_tools"] == {"asked": ["Lisbon"], "text": SAID}
    assert found["ai_object"] == {"city": "Lisbon", "degrees": 18}
    assert found["ai_embeddings"] == {"sizes": [64, 64]}
    assert found["ai_errors"] == {"status": 400, "code": "context_length_exceeded"}
