"""When the compiled encoder takes over, and when it never does."""

import builtins
import os
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings

from gateway.prompt.compiled.compiling import Compiling, preload
from gateway.prompt.fast_bpe import FastBpe
from gateway.prompt.openai_encodings import CL100K
from tests.gateway.prompt.compiled.test_kernel import TEXTS, ranks
from tests.gateway.prompt.test_fast_bpe import theirs, tokenizer_json

DATA = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data"))


@cache
def quick() -> FastBpe:
    """The bundled model's, with the compiled encoder."""
    fast = FastBpe.build(tokenizer_json())
    assert fast is not None
    fast.start_compiling()
    fast.compiled.wait()
    assert fast.compiled.is_ready
    return fast


@given(TEXTS)
@settings(max_examples=400, deadline=None)
def test_ids_are_those_of_the_models_own_tokenizer(text: str) -> None:
    ids = quick().encode(text, text.encode())
    assert ids is None or list(ids) == theirs(text)


def test_every_text_of_the_shared_data_has_the_models_own_ids() -> None:
    paths = sorted(path for path in DATA.rglob("*") if path.suffix in {".txt", ".json", ".md"})
    if not paths:
        pytest.skip(f"no texts under {DATA}")
    num_known = 0
    for path in paths[:: max(1, len(paths) // 40)]:
        text = path.read_text(errors="replace")[:100_000]
        ids = quick().compiled.encode(text.encode())
        num_known += ids is not None
        assert ids is None or list(ids) == theirs(text), path
    assert num_known > 0


def test_the_kernel_can_be_read_before_there_is_a_vocabulary() -> None:
    preload().join()
    assert quick().compiled.is_ready


def test_waiting_ends_in_time_or_when_it_is_ready() -> None:
    release = Event()

    def slow(text: str) -> "array[int] | None":
        release.wait()
        return quick()._without_added(text)

    compiling = Compiling(quick().encoding._pat_str, ranks())
    compiling.start(slow)
    compiling.wait(0.05)
    assert not compiling.is_ready
    assert compiling.encode(b"a") is None
    release.set()
    compiling.wait()
    assert compiling.is_ready
    assert compiling.encode(b"a") is not None


def test_nothing_is_compiled_before_it_is_asked_for() -> None:
    compiling = Compiling(CL100K, {b"a": 0})
    compiling.wait()
    assert compiling.encode(b"a") is None


def test_ids_that_are_others_are_never_used(caplog: pytest.LogCaptureFixture) -> None:
    compiling = Compiling(CL100K, ranks())
    compiling.start(lambda text: array("i", [0]))
    compiling.wait()
    assert not compiling.is_ready
    assert "its ids are others" in caplog.text


def test_another_expression_is_left_to_tiktoken() -> None:
    compiling = Compiling(r"\w+|\W+", ranks())
    compiling.start(lambda text: array("i", []))
    compiling.wait()
    assert not compiling.is_ready


def test_without_numba_everything_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = builtins.__import__

    def refusing(
        name: str, globals: object = None, locals: object = None,
        fromlist: Sequence[str] = (), level: int = 0,
    ) -> object:  # fmt: skip
        if name.endswith("compiled.tables"):
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)  # type: ignore[arg-type]

    compiling = Compiling(CL100K, ranks())
    monkeypatch.setattr(builtins, "__import__", refusing)
    with caplog.at_level("INFO"):
        compiling.start(lambda text: None)
        compiling.wait()
    assert not compiling.is_ready
    assert "numba is not installed" in caplog.text
