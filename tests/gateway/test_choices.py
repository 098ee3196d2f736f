"""Several answers to one prompt, as the official client sees them."""

from typing import Any

from engines.api import GenerateRequest
from engines.fake import Script
from tests.gateway.fakes import BpeEngine, Start, ids_of, tokenizer_files

TEXTS = ("Hello there, fox.", "The lazy dog.", "Hello over the dog, and more.")


def create(start: Start, engine: BpeEngine, **fields: object) -> Any:
    client: Any = start(engine).client()
    messages = [{"role": "user", "content": "hi"}]
    return client.chat.completions.create(model="fake", messages=messages, seed=0, **fields)


def by_seed(*texts: str) -> Script:
    """A text for every answer, from seed 0 on."""

    def script(request: GenerateRequest) -> list[int]:
        return [*ids_of(texts[request.sampling.seed % len(texts)]), *tokenizer_files().stop_ids]

    return script


def test_every_choice_is_whole_and_usage_is_their_sum(start: Start) -> None:
    engine = BpeEngine(by_seed(*TEXTS))
    answer = create(start, engine, n=3, max_tokens=8, logprobs=True)
    assert engine.requests[0].n == 3
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    cut = [ids_of(text)[:8] for text in TEXTS]
    for choice, text, ids in zip(answer.choices, TEXTS, cut, strict=True):
        is_whole = len(ids_of(text)) <= 8 and ids == ids_of(text)
        assert text.startswith(choice.message.content)
        assert choice.finish_reason == ("stop" if is_whole and len(ids) < 8 else "length")
        assert len(choice.logprobs.content) == len(ids)
    assert answer.usage.completion_tokens == sum(map(len, cut))
    assert len(engine.requests) == 1


def test_streamed_choices_are_interleaved_and_end_each_for_itself(start: Start) -> None:
    engine = BpeEngine(by_seed(*TEXTS))
    usage = {"include_usage": True}
    chunks = list(
        create(start, engine, n=3, stream=True, stream_options=usage, stop=["fox", "dog"])
    )
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert [one.index for one in told[:3]] == [0, 1, 2]
    assert all(one.delta.role == "assistant" for one in told[:3])
    said = ["".join(o.delta.content or "" for o in told if o.index == i) for i in range(3)]
    assert said == ["Hello there, ", "The lazy ", "Hello over the "]
    spoken = [one.index for one in told[3:] if one.delta.content]
    assert spoken != sorted(spoken)
    ends = [one for one in told if one.finish_reason]
    assert sorted(one.index for one in ends) == [0, 1, 2]
    assert {one.finish_reason for one in ends} == {"stop"}
    for end in ends:
        assert told.index(end) == max(i for i, one in enumerate(told) if one.index == end.index)
    assert chunks[-1].usage.completion_tokens > 0
    assert "ringway" in chunks[0].model_extra
    assert "ringway" in chunks[-1].model_extra


def test_when_every_choice_has_met_its_stop_the_engine_is_let_go(start: Start) -> None:
    engine = BpeEngine(by_seed("Hello there and on", "the dog and on and on"))
    answer = create(start, engine, n=2, stop=" and")
    assert [one.message.content for one in answer.choices] == ["Hello there", "the dog"]
    assert engine.aborted == [answer.id]
