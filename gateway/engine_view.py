"""What the gateway knows of its engine: info not older than a second, text tools by digest.

Knows no requests. One flight at a time asks the engine; the others wait for its answer.
"""

import asyncio
from collections.abc import Callable

from engines.api import Engine, EngineInfo
from gateway.prompt.model_text import ModelText


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
                self._model = await asyncio.to_thread(ModelText.build, files)
            return self._model
