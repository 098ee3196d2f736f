"""What the gateway knows of its engines: info not older than a second, text tools by digest.

Knows no requests. One flight at a time asks the engine; the others wait for its answer.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from engines.api import Engine, EngineInfo, EngineLost, TokenizerFiles
from gateway.api import UnknownModel
from gateway.prompt.model_text import ModelText

COMPILED_WITHIN_S = 2.0
"""How long the first request waits for the compiled encoder: it is read from disk in half a second
and, on a machine's first start only, compiled in several."""


def _built(files: TokenizerFiles) -> ModelText:
    model = ModelText.build(files)
    model.encoder.start_compiling()
    model.encoder.wait_compiled(COMPILED_WITHIN_S)
    return model


class EngineView:
    def __init__(
        self, engine: Engine, *, monotonic: Callable[[], float], max_age_s: float = 1.0
    ) -> None:
        self.engine = engine
        self._monotonic = monotonic
        self._max_age_s = max_age_s
        self._info: EngineInfo | None = None
        self._asked_at = 0.0
        self._model: ModelText | None = None
        self._info_lock = asyncio.Lock()
        self._model_lock = asyncio.Lock()

    async def info(self) -> EngineInfo:
        """Raises EngineLost."""
        async with self._info_lock:
            now = self._monotonic()
            if self._info is None or now - self._asked_at > self._max_age_s:
                self._info = await self.engine.info()
                self._asked_at = now
            return self._info

    async def model_text(self, info: EngineInfo) -> ModelText:
        """Template and tokenizer that `info` names; built once per digest. Raises EngineLost."""
        async with self._model_lock:
            if self._model is None or self._model.digest != info.tokenizer_digest:
                files = await self.engine.tokenizer()
                self._model = await asyncio.to_thread(_built, files)
            return self._model


class EngineViews:
    """Which engine serves which model.

    With `models`, those and no others; without, `engine` alone, under the name it tells.
    """

    def __init__(
        self,
        engine: Engine,
        models: Mapping[str, Engine],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._named = {name: EngineView(one, monotonic=monotonic) for name, one in models.items()}
        self.first = next(iter(self._named.values()), None) or EngineView(
            engine, monotonic=monotonic
        )

    async def of(self, model: str) -> tuple[EngineView, EngineInfo]:
        """Raises UnknownModel and EngineLost."""
        view = self._named.get(model) if self._named else self.first
        if view is None:
            raise UnknownModel(model)
        info = await view.info()
        if info.model != model:
            raise UnknownModel(model)
        return view, info

    def engine_of(self, model: str) -> Engine:
        """The engine of a model that `of` knew."""
        return self._named.get(model, self.first).engine

    async def names_where(self, holds: Callable[[EngineInfo], bool]) -> list[str]:
        """The models of which `holds` is true, of those whose engines can be reached."""
        found = []
        for view in self._named.values() or [self.first]:
            with suppress(EngineLost):
                info = await view.info()
                if holds(info):
                    found.append(info.model)
        return found

    async def models(self) -> list[str]:
        """Names in the order configured. Raises EngineLost when the only engine must tell its."""
        if self._named:
            return list(self._named)
        return [(await self.first.info()).model]
