"""A million tokens through `/v1/chat/completions` of `ringway up`, by `hierarchical`.

    python -m tests.bench.million [--tokens 1000000] [--seed 7]

One synthetic case file inside the request; its planted facts are asked one after the other in one
session. Prints a line per question, a table for the docs, and one JSON object on the last line:
seconds and tokens read, the longest silence on the wire, the peak of anonymous memory of engine and
ranks, and `second_vs_first`, the second question's time to its first token over the first's.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from gateway.cli.sse_reader import SseComment, read_sse
from ingest.synth.api import (
    CaseRequest,
    EstimateCounter,
    FactKind,
    Question,
    states,
    synthesize,
)
from tests.e2e.running import Running

TIMEOUT_S = 3600.0
SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    first_token_s: float
    total_s: float
    silence_s: float
    comments: int
    text: str
    ringway: dict[str, Any]
    usage: dict[str, Any]


def main() -> None:
    args = arguments()
    case = synthesize(CaseRequest(seed=args.seed, num_tokens=args.tokens), EstimateCounter())
    document = {"id": "case", "text": case.documents[0].text}
    questions = [one for one in case.key.questions if one.kind is not FactKind.TWO_HOP][:3]
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            with peak_of(gang(running)) as peak:
                answers = [asked(running, document, one) for one in questions]
        finally:
            running.end()
    report(questions, answers, peak())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def gang(running: Running) -> list[psutil.Process]:
    engine = running.named("engine")
    return [engine, *engine.children(recursive=True)]


@contextmanager
def peak_of(processes: list[psutil.Process]) -> Iterator[Callable[[], int]]:
    """The most anonymous memory that they held together, as the kernel counts it."""
    peaks = [0]
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(SAMPLE_S):
            peaks.append(sum(anonymous_bytes(one.pid) for one in processes))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(peaks)
    finally:
        stopped.set()
        watcher.join()


def anonymous_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if line.endswith("kB")}
    return int(sizes.get("RssAnon", 0)) << 10


def asked(running: Running, document: dict[str, str], question: Question) -> Asked:
    body = {
        "model": running.client().models.list().data[0].id,
        "messages": [{"role": "user", "content": question.question}],
        "documents": [document],
        "fidelity": "hierarchical",
        "prompt_cache_key": "million",
        "temperature": 0,
        "max_completion_tokens": 40,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = last = time.monotonic()
    first_token_s, silence_s, comments, text = 0.0, 0.0, 0, ""
    ringway: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    with httpx.stream(
        "POST", f"{running.url}/v1/chat/completions", json=body, timeout=TIMEOUT_S
    ) as reply:
        if reply.status_code != 200:
            sys.exit(reply.read().decode())
        for event in read_sse(reply.iter_bytes()):
            now = time.monotonic()
            silence_s, last = max(silence_s, now - last), now
            if isinstance(event, SseComment):
                comments += 1
                print(f"\r{event.text}, {now - started:.0f} s", end="", flush=True)
                continue
            if event.text == "[DONE]":
                break
            chunk = json.loads(event.text)
            ringway = chunk.get("ringway") or ringway
            usage = chunk.get("usage") or usage
            said = "".join(one["delta"].get("content") or "" for one in chunk["choices"])
            if said and not text:
                first_token_s = now - started
            text += said
    print(flush=True)
    return Asked(
        first_token_s=first_token_s,
        total_s=time.monotonic() - started,
        silence_s=silence_s,
        comments=comments,
        text=text.strip(),
        ringway=ringway,
        usage=usage,
    )


def report(questions: list[Question], answers: list[Asked], peak_bytes: int) -> None:
    right = [states(one.text, question) for question, one in zip(questions, answers, strict=True)]
    print("| question | first token | in all | tokens | cached | answer | right |")
    print("|---|---|---|---|---|---|---|")
    for question, one, is_right in zip(questions, answers, right, strict=True):
        cached = one.usage["prompt_tokens_details"]["cached_tokens"]
        print(
            f"| {question.question} | {one.first_token_s:.1f} s | {one.total_s:.1f} s "
            f"| {one.ringway['prompt_tokens']:,} | {cached:,} | {one.text} "
            f"| {'yes' if is_right else 'no'} |"
        )
    print(f"anonymous memory of the gang: {peak_bytes / 1e9:.2f} GB at most")
    figures = {
        "tokens": answers[0].ringway["prompt_tokens"],
        "first_s": round(answers[0].first_token_s, 1),
        "second_vs_first": round(answers[1].first_token_s / answers[0].first_token_s, 4),
        "right": sum(right),
        "asked": len(right),
        "longest_silence_s": round(max(one.silence_s for one in answers), 1),
        "anonymous_gb": round(peak_bytes / 1e9, 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
