"""Endpoints on a whole `ringway up`: the bundled embedder, and a batch of real answers."""

import json
import time
from math import fsum

import pytest

from tests.e2e.running import Running

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(150)]

EMBEDDER = "all-MiniLM-L6-v2"


def test_near_texts_have_near_vectors_and_the_embedders_count(running: Running) -> None:
    texts = ["The cat sat on the mat.", "A cat is sitting on a rug.", "Interest rates rose."]
    with running.client() as client:
        answer = client.embeddings.create(model=EMBEDDER, input=texts)
        assert EMBEDDER in [model.id for model in client.models.list()]
    mat, rug, rates = (one.embedding for one in answer.data)

    def cosine(a: list[float], b: list[float]) -> float:
        return fsum(x * y for x, y in zip(a, b, strict=True))

    assert len(mat) == 384
    assert cosine(mat, rug) > 0.5 > 0.3 > cosine(mat, rates)
    assert answer.usage.prompt_tokens == 9 + 10 + 6


def test_a_batch_of_responses_ends_in_an_output_file(running: Running) -> None:
    with running.client() as client:
        model = client.models.list().data[0].id
        lines = [
            {
                "custom_id": f"q{i}",
                "method": "POST",
                "url": "/v1/responses",
                "body": {"model": model, "input": f"Count to {i}.", "max_output_tokens": 4},
            }
            for i in range(2)
        ]
        text = "\n".join(json.dumps(line) for line in lines)
        file = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        )
        deadline = time.monotonic() + 120
        while batch.status not in ("completed", "failed") and time.monotonic() < deadline:
            time.sleep(0.5)
            batch = client.batches.retrieve(batch.id)
        assert batch.status == "completed", batch
        results = client.files.content(str(batch.output_file_id)).text.splitlines()
    assert [json.loads(one)["custom_id"] for one in results] == ["q0", "q1"]
