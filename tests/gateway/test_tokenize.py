import json

import httpx

from tests.gateway.fakes import SPECIALS, BpeEngine, Start, id_of, ids_of, trained

MESSAGES = [{"role": "user", "content": "the quick brown fox, 東京 <|im_end|>"}]


def post(url: str, path: str, body: object) -> httpx.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{url}/v1/{path}", content=raw, timeout=20)


def test_messages_have_the_tokens_that_a_chat_would_read(start: Start) -> None:
    engine = BpeEngine()
    url = start(engine).url
    chat = post(url, "chat/completions", {"model": "fake", "messages": MESSAGES}).json()
    told = post(url, "tokenize", {"model": "fake", "messages": MESSAGES}).json()
    assert told["tokens"] == list(engine.requests[0].prompt_ids)
    assert told["count"] == len(told["tokens"]) == chat["ringway"]["prompt_tokens"]
    assert told["max_model_len"] == 1_000_000
    assert told["count_kind"] == chat["ringway"]["count_kind"] == "exact"
    assert told["token_strs"] is None


def test_without_the_opening_of_an_answer_the_prompt_ends_with_the_message(start: Start) -> None:
    body = {"model": "fake", "messages": MESSAGES, "return_token_strs": True}
    url = start().url
    whole = post(url, "tokenize", body).json()
    bare = post(url, "tokenize", {**body, "add_generation_prompt": False}).json()
    assert bare["token_strs"][-2:] == ["<|im_end|>", "Ċ"]
    assert whole["tokens"][: bare["count"]] == bare["tokens"]
    assert whole["count"] > bare["count"]


def test_a_plain_prompt_goes_there_and_back(start: Start) -> None:
    url = start().url
    text = "it isn't here.\r\n\x00\ufeff 東京 👩‍👧"
    told = post(url, "tokenize", {"model": "fake", "prompt": text}).json()
    assert told["tokens"] == ids_of(text)
    back = post(url, "detokenize", {"model": "fake", "tokens": told["tokens"]})
    assert back.json() == {"prompt": text}


def test_special_tokens_are_data_in_messages_and_control_in_a_plain_prompt(start: Start) -> None:
    url = start().url
    text = f"a{SPECIALS[1]}b"
    control = id_of(SPECIALS[1])
    prompt = post(url, "tokenize", {"model": "fake", "prompt": text}).json()["tokens"]
    message = [{"role": "user", "content": text}]
    chat = post(url, "tokenize", {"model": "fake", "messages": message}).json()["tokens"]
    harmless = [{"role": "user", "content": "ab"}]
    plain = post(url, "tokenize", {"model": "fake", "messages": harmless}).json()["tokens"]
    assert prompt.count(control) == 1
    assert chat.count(control) == plain.count(control)


def test_bad_bodies_are_refused_by_name(start: Start) -> None:
    url = start().url
    beyond = trained().get_vocab_size()
    for path, body, param in (
        ("tokenize", {"model": "fake"}, "prompt"),
        ("tokenize", {"model": "fake", "prompt": "a", "messages": MESSAGES}, "prompt"),
        ("tokenize", {"model": "fake", "prompt": 1}, "prompt"),
        ("tokenize", {"model": "fake", "prompt": "a", "surprise": 1}, "surprise"),
        ("tokenize", {"model": "fake", "messages": []}, "messages"),
        ("tokenize", {"model": "fake", "messages": MESSAGES, "top": 1}, "top"),
        ("tokenize", {"model": "other", "prompt": "a"}, "model"),
        ("detokenize", {"model": "fake", "tokens": [beyond]}, "tokens"),
        ("detokenize", {"model": "fake", "tokens": [-1]}, "tokens[0]"),
        ("detokenize", {"model": "fake", "tokens": ["a"]}, "tokens[0]"),
    ):
        answer = post(url, path, body)
        assert answer.status_code in (400, 404), answer.text
        assert answer.json()["error"]["param"] == param


def test_an_unpaired_surrogate_is_a_400_that_says_so(start: Start) -> None:
    url = start().url
    for filler in ("", "x" * 200_000):
        raw = f'{{"model":"fake","messages":[{{"role":"user","content":"{filler}\\ud800"}}]}}'
        answer = post(url, "chat/completions", raw.encode())
        assert answer.status_code == 400
        assert "unpaired surrogate" in answer.json()["error"]["message"]
