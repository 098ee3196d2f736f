"""The analyzer's terms, word by word."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.analyzer import MAX_TERM_CHARS, analyze, analyze_joined


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("the of and, what is it?", []),
        ("Running runs ran", ["run", "run", "ran"]),
        ("max_num_seqs", ["max_num_seqs", "max", "num", "seq"]),
        ("parseHTTPRequest2", ["parsehttprequest2", "pars", "http", "request", "2"]),
        ("MAX_RETRIES", ["max_retries", "max", "retri"]),
        ("__init__", ["init"]),
        ("utf8", ["utf8", "utf", "8"]),
        ("10,000 and 3.5", ["10000", "3.5"]),
        ("$1,234.50!", ["1234.50"]),
        ("B-52", ["b", "52"]),
        ("don't", []),
        ("Café RÉSUMÉ", ["cafe", "resum"]),
        ("Straße", ["strass"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("京", ["京"]),
        ("Python入門3", ["python", "入門", "3"]),
        ("ПРИВЕТ Ёлка", ["привет", "елка"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("\ufb01nal \uff21\uff22", ["final", "ab"]),
    ],
)
def test_words_become_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_repeats_and_order_are_kept() -> None:
    assert analyze("beta alpha beta") == ["beta", "alpha", "beta"]


@pytest.mark.parametrize("other", ["maxNumSeqs", "max-num-seqs", "max num seq", "MAX_NUM_SEQS"])
def test_every_spelling_of_an_identifier_shares_its_parts(other: str) -> None:
    assert set(analyze(other)) >= {"max", "num", "seq"}


def test_endless_words_are_cut() -> None:
    [term] = analyze("z" * 5000)
    assert len(term) == MAX_TERM_CHARS


@given(st.text(max_size=200))
def test_terms_hold_no_spaces_and_survive_joining(text: str) -> None:
    terms = analyze(text)
    assert all(term and not any(char.isspace() for char in term) for term in terms)
    assert analyze_joined(text).split(" ") == terms or not terms


@given(st.text(max_size=80))
def test_analysis_is_the_same_every_time(text: str) -> None:
    assert analyze(text) == analyze(text)


def test_threads_do_not_disturb_each_other() -> None:
    texts = [f"connections{letter} generational{letter} running{letter}" for letter in "abcdefgh"]
    expected = [analyze(text) for text in texts]
    fresh = [text.replace("connect", "reconnect") for text in texts] * 50
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(analyze, fresh))
    assert found[: len(texts)] == [analyze(text) for text in fresh[: len(texts)]]
    assert [analyze(text) for text in texts] == expected


def test_a_million_tokens_take_seconds_not_minutes() -> None:
    text = "The quick brown foxes were jumping over max_num_seqs lazy dogs in 1969. " * 60_000
    started = time.process_time()
    analyze(text)
    assert time.process_time() - started < 8
