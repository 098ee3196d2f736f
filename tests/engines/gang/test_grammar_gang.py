"""A real gang of a tiny random model that would never say JSON by itself, made to."""

import asyncio
import json
import os
import signal
from array import array
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from engines.api import (
    EngineRefused,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    Grammar,
    GrammarKind,
    GrammarRefused,
    Sampling,
    TokenEvent,
)
from engines.config import EngineConfig
from engines.fake import END_ID, byte_ids, byte_tokenizer
from engines.gang.supervisor import Supervisor
from tests.engines.gang.scripted_gang import collect, rank_pids, running

pytest.importorskip("torch")
pytest.importorskip("llguidance")

from engines.wiring import build_supervisor
from tests.engines.local.families import save_family

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

SCHEMA = {
    "type": "object",
    "properties": {
        "parties": {"type": "array", "items": {"enum": ["Anna", "Bo"]}, "maxItems": 3},
        "signed": {"type": "boolean"},
        "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
    },
    "required": ["parties", "signed", "year"],
    "additionalProperties": False,
}
ASK = GenerateRequest(
    request_id="r",
    prompt_ids=array("i", byte_ids("Tell me who signed.")),
    max_new_tokens=400,
    stop_ids=(END_ID,),
    sampling=Sampling(temperature=1.0, seed=3),
    grammar=Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
)


def byte_model(folder: Path) -> EngineConfig:
    """Random weights under the fake engine's tokenizer."""
    save_family("llama", folder, vocab_size=END_ID + 3, eos_token_id=END_ID)
    (folder / "tokenizer.json").write_bytes(byte_tokenizer().tokenizer_json)
    return EngineConfig(
        model_dir=folder,
        model_name="bytes",
        prefill_chunk_tokens=64,
        kv_budget_bytes=1 << 28,
        step_timeout_s=30.0,
    )


async def test_a_gang_answers_in_its_grammar_alone_together_and_after_a_death(
    tmp_path: Path,
) -> None:
    """One engine for all clauses: a real gang takes seconds to start."""
    async with running(build_supervisor(byte_model(tmp_path))) as engine:
        await a_grammar_that_cannot_be_is_refused(engine)
        await every_seed_and_every_answer_parses(engine)
        await the_end_of_the_room_cuts_and_says_so(engine)
        await a_death_in_the_middle_changes_nothing(engine)


async def a_grammar_that_cannot_be_is_refused(engine: Supervisor) -> None:
    wat = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "wat"}')
    with pytest.raises(GrammarRefused, match="wat") as refusal:
        await collect(engine.generate(replace(ASK, grammar=wat)))
    assert isinstance(refusal.value, EngineRefused)


async def every_seed_and_every_answer_parses(engine: Supervisor) -> None:
    asked = [
        replace(ASK, n=2, sampling=Sampling(temperature=t, seed=seed))
        for seed, t in ((1, 1.0), (20, 2.0))
    ]
    for events in await asyncio.gather(*(collect(engine.generate(one)) for one in asked)):
        for index in range(2):
            assert holds(json.loads(text_of(events, index)))
        assert finish_of(events).reason is FinishReason.STOP


async def the_end_of_the_room_cuts_and_says_so(engine: Supervisor) -> None:
    events = await collect(engine.generate(replace(ASK, max_new_tokens=9)))
    assert finish_of(events).reason is FinishReason.LENGTH
    assert text_of(events).startswith("{")


async def a_death_in_the_middle_changes_nothing(engine: Supervisor) -> None:
    quiet = text_of(await collect(engine.generate(ASK)))
    epoch = (await engine.info()).epoch
    events: list[Event] = []
    async with aclosing(engine.generate(ASK)) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TokenEvent) and len(text_of(events)) == 12:
                os.kill(max(rank_pids(os.getpid())), signal.SIGKILL)
    assert (await engine.info()).epoch > epoch
    assert text_of(events) == quiet


def text_of(events: list[Event], index: int = 0) -> str:
    ids = [one.id for one in events if isinstance(one, TokenEvent) and one.index == index]
    return bytes(ids).decode()


def finish_of(events: list[Event]) -> FinishEvent:
    assert isinstance(events[-1], FinishEvent)
    return events[-1]


def holds(value: object) -> bool:
    match value:
        case {"parties": list(parties), "signed": bool(), "year": int(year), **rest}:
            return not rest and set(parties) <= {"Anna", "Bo"} and 1900 <= year <= 2100
    return False
