"""Runs `llm-comply` for chat completions and Open Responses against a gateway over an upstream.

`python -m tests.bench.comply [--command .venv-peers/bin/llm-comply]`. The upstream is a mock that
takes images: it calls the tool where there is one, and says whether it was sent a picture. The
last line of output is one JSON object: by format, how many tests passed and what the others said.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.gateway.upstreams.mock_upstream import USAGE, Asked, Reply, finish, mock, said, sse
from tests.gateway.upstreams.serving import gateway_of

FORMATS = ("openai-chat", "open-responses")
LIMIT_S = 300
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"location": "San Francisco"}'},
}


def scene(asked: Asked) -> Reply:
    """The suites judge shapes, not what is said."""
    if asked.body.get("tools"):
        call = {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}
        return Reply(steps=sse(call, finish("tool_calls"), USAGE, b"[DONE]"))
    if b"data:image/" in asked.raw:
        return said("A ", "picture.")
    return said("One, ", "two, ", "three.")


async def run(command: Path, url: str, api_format: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(command, "-u", f"{url}/v1", "-k", "unused", "-m", "sees", "--json"),
        *("--format", api_format),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_S):
        told, complaints = await process.communicate()
    try:
        report = json.loads(told)
    except ValueError:
        raise SystemExit(
            f"llm-comply said no JSON: {told[-500:]!r} {complaints[-500:]!r}"
        ) from None
    results = report["results"] if isinstance(report, dict) else report
    return {
        "passed": sum(one["status"] == "passed" for one in results),
        "skipped": [one["id"] for one in results if one["status"] == "skipped"],
        "failed": {one["id"]: one.get("errors") for one in results if one["status"] == "failed"},
    }


async def comply(command: Path) -> dict[str, Any]:
    async with mock(scene) as upstream:
        model = {
            "replicas": [{"url": upstream.url, "kind": "openai"}],
            "context_tokens": 131_072,
            "images": True,
        }
        async with gateway_of({"sees": model}) as gateway:
            url = str(gateway.base_url).rstrip("/")
            return {api_format: await run(command, url, api_format) for api_format in FORMATS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", type=Path, default=Path(".venv-peers/bin/llm-comply"))
    args = parser.parse_args()
    if not args.command.exists():
        sys.exit(f"{args.command} is not there; pip install llm-comply into that environment")
    print(json.dumps(asyncio.run(comply(args.command))))


if __name__ == "__main__":
    main()
