"""Runs `llm-comply` for chat completions and Open Responses against a gateway with a fake engine.

`python -m tests.bench.comply [--command .venv-peers/bin/llm-comply]`. The last line of output is
one JSON object: by format, how many tests passed and what the others said.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from engines.api import GenerateRequest
from engines.fake import FakeSettings
from tests.gateway.fakes import (
    BpeEngine,
    ids_of,
    make_parts,
    running,
    tokenizer_files,
    trained,
)

FORMATS = ("openai-chat", "open-responses")
CALL = '<tool_call>{"name": "get_weather", "arguments": {"location": "San Francisco"}}</tool_call>'


def scene(request: GenerateRequest) -> list[int]:
    """Calls the tool where there is one; the suites judge shapes, not what is said."""
    prompt = trained().decode(list(request.prompt_ids))
    text = CALL if "get_weather" in prompt else "One, two, three, four, five."
    return [*ids_of(text), *tokenizer_files().stop_ids]


def run(command: Path, url: str, api_format: str) -> dict[str, Any]:
    told = subprocess.run(
        [
            command,
            "-u",
            f"{url}/v1",
            "-k",
            "unused",
            "-m",
            "fake",
            "--json",
            "--format",
            api_format,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    try:
        report = json.loads(told.stdout)
    except ValueError:
        raise SystemExit(
            f"llm-comply said no JSON: {told.stdout[-500:]} {told.stderr[-500:]}"
        ) from None
    results = report["results"] if isinstance(report, dict) else report
    failed = {one["id"]: one.get("errors") for one in results if one["status"] == "failed"}
    return {
        "passed": sum(one["status"] == "passed" for one in results),
        "skipped": sum(one["status"] == "skipped" for one in results),
        "failed": failed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", type=Path, default=Path(".venv-peers/bin/llm-comply"))
    args = parser.parse_args()
    if not args.command.exists():
        sys.exit(f"{args.command} is not there; run: make bench-peers")
    with running(make_parts(BpeEngine(scene, FakeSettings()))) as gateway:
        found = {api_format: run(args.command, gateway.url, api_format) for api_format in FORMATS}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
