"""Chat completions kept with `store`, as OpenAI's own client lists, reads and changes them."""

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from engines.api import EngineLost
from engines.fake import FakeSettings
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say
from tests.gateway.tenancy.test_keys import Issued


def ask(gateway: Running, text: Any = "hi", **fields: Any) -> Any:
    client: Any = gateway.client()
    return client.chat.completions.create(
        **{
            "model": "fake",
            "messages": [{"role": "user", "content": text}],
            "store": True,
            **fields,
        }
    )


def ids(page: Any) -> list[str]:
    return [one.id for one in page.data]


def test_what_was_kept_is_the_answer_that_was_given_and_its_metadata(start: Start) -> None:
    gateway = start(BpeEngine(bpe_say("Hello, 東京!")))
    answer = ask(gateway, metadata={"case": "7"})
    kept = gateway.client().chat.completions.retrieve(answer.id)
    assert kept.to_dict() == {**answer.to_dict(), "metadata": {"case": "7"}}


@pytest.mark.parametrize("n", [1, 2])
def test_a_streamed_answer_is_kept_as_it_would_have_been_given_whole(start: Start, n: int) -> None:
    gateway = start(BpeEngine(bpe_say("Hello there")))
    chunks = list(ask(gateway, stream=True, n=n))
    kept = gateway.client().chat.completions.retrieve(chunks[0].id)
    assert [one.message.content for one in kept.choices] == ["Hello there"] * n
    assert kept.usage is not None
    assert kept.usage.completion_tokens > 0


def test_what_failed_or_was_not_to_be_kept_is_not(start: Start) -> None:
    settings = FakeSettings(failure=EngineLost("gone"), fails_after=1)
    gateway = start(BpeEngine(bpe_say("one two"), settings))
    with pytest.raises(openai.APIError):
        list(ask(gateway, stream=True))
    assert ids(gateway.client().chat.completions.list()) == []
    gateway = start()
    answer = ask(gateway, store=False)
    with pytest.raises(openai.NotFoundError) as missing:
        gateway.client().chat.completions.retrieve(answer.id)
    assert missing.value.code == "completion_not_found"
    assert missing.value.param == "completion_id"


def test_they_are_listed_in_order_page_by_page(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    made = [ask(gateway).id for _ in range(5)]
    assert ids(client.chat.completions.list()) == made
    assert ids(client.chat.completions.list(order="desc")) == made[::-1]
    page = client.chat.completions.list(limit=2)
    assert (ids(page), page.has_more) == (made[:2], True)
    assert [one.id for one in page] == made, "the client turns the pages itself"
    assert ids(client.chat.completions.list(after=made[3])) == made[4:]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.list(after="chatcmpl-nobody")


def test_they_are_found_by_metadata_and_model(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    a = ask(gateway, metadata={"case": "7", "by": "ann"}).id
    b = ask(gateway, metadata={"case": "7"}).id
    ask(gateway)
    listing = client.chat.completions.list
    assert ids(listing(metadata={"case": "7"})) == [a, b]
    assert ids(listing(metadata={"case": "7", "by": "ann"})) == [a]
    assert ids(listing(metadata={"case": "8"})) == []
    assert len(ids(listing(model="fake"))) == 3
    assert ids(listing(model="other")) == []


def test_metadata_is_changed_and_nothing_else(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    answer = ask(gateway, metadata={"case": "7"})
    changed: Any = client.chat.completions.update(answer.id, metadata={"case": "8"})
    assert changed.metadata == {"case": "8"}
    assert changed.choices == client.chat.completions.retrieve(answer.id).choices
    assert ids(client.chat.completions.list(metadata={"case": "8"})) == [answer.id]
    assert ids(client.chat.completions.list(metadata={"case": "7"})) == []
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.update(answer.id, metadata={"x" * 65: "y"})
    assert refused.value.code == "invalid_value"


def test_a_deleted_one_is_gone(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    answer = ask(gateway)
    gone = client.chat.completions.delete(answer.id)
    assert (gone.id, gone.deleted, gone.object) == (answer.id, True, "chat.completion.deleted")
    calls: list[Callable[[str], object]] = [
        client.chat.completions.retrieve,
        client.chat.completions.delete,
        client.chat.completions.messages.list,
        lambda one: client.chat.completions.update(one, metadata={}),
    ]
    for call in calls:
        with pytest.raises(openai.NotFoundError):
            call(answer.id)


def test_the_messages_that_it_was_asked_with_are_listed(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    answer = ask(
        gateway,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": parts, "name": "ann"},
        ],
    )
    first, second = client.chat.completions.messages.list(answer.id).data
    assert (first.id, first.role, first.content) == (f"{answer.id}-0", "system", "Be brief.")
    assert first.content_parts is None
    assert second.content == "a\nb"
    assert [part.to_dict() for part in second.content_parts or ()] == parts
    newest = client.chat.completions.messages.list(answer.id, order="desc", limit=1)
    assert (ids(newest), newest.has_more) == ([second.id], True)
    assert ids(client.chat.completions.messages.list(answer.id, after=first.id)) == [second.id]
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.messages.list(answer.id, after="nobody")


def test_a_tenant_sees_its_own_only(start: Start) -> None:
    issued = Issued()
    ours, theirs = issued.issue("acme"), issued.issue("other")
    client = start(issued=issued).client()
    ann, bob = (client.with_options(default_headers=key) for key in (ours, theirs))
    answer = ann.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "hi"}], store=True
    )
    assert ids(ann.chat.completions.list()) == [answer.id]
    assert ids(bob.chat.completions.list()) == []
    for call in (bob.chat.completions.retrieve, bob.chat.completions.delete):
        with pytest.raises(openai.NotFoundError):
            call(answer.id)


@pytest.mark.parametrize("query", ["metadata=x", "metadata[]=x", "limit=0", "order=up"])
def test_a_query_of_the_wrong_form_is_refused(start: Start, query: str) -> None:
    answer = httpx.get(f"{start().url}/v1/chat/completions?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in query
