"""What one gang can hold, and which requests it refuses; pure, knows no ranks and no clock."""

from collections.abc import Mapping
from dataclasses import dataclass

from engines.api import Attention, EngineRefused, GenerateRequest, PromptTooLong
from engines.config import EngineConfig, HierarchicalConfig

SERVICE_TIERS = ("priority", "default", "flex")

UNEVEN_TOKENS = 2
"""A prefill step may give one rank this many tokens more than its even share."""

SHARD_SLACK_TOKENS = 32
"""One page of decoded tokens and what rounding takes, per rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangLimits:
    """`ranks` are places on the ring. `kv_budget_tokens` counts over all of them and all open
    sequences."""

    ranks: int
    vocab_size: int
    window_tokens: int
    kv_budget_tokens: int
    prefill_chunk_tokens: int
    max_running: int
    max_queued: int
    hierarchical: HierarchicalConfig
    max_deaths: int = 3

    @classmethod
    def of(
        cls, config: EngineConfig, *, vocab_size: int, window_tokens: int, kv_budget_tokens: int
    ) -> "GangLimits":
        return cls(
            ranks=config.ring_size,
            vocab_size=vocab_size,
            window_tokens=window_tokens,
            kv_budget_tokens=kv_budget_tokens,
            prefill_chunk_tokens=config.prefill_chunk_tokens,
            max_running=config.max_running,
            max_queued=config.max_queued,
            hierarchical=config.hierarchical,
            max_deaths=config.max_deaths,
        )

    @property
    def least_chunk_tokens(self) -> int:
        """Fewer rows than this are not shared out among the ranks, so they save no memory."""
        return 2 * self.ranks

    def chunk_tokens(self, num_decoding: int) -> int:
        """What one step may read of a prompt beside so many running streams.

        Streams and prompt share the budget of `prefill_chunk_tokens` per turn, so that a full
        batch does not wait longer for it. A multiple of the pieces that a chunk is cut in.
        """
        least = self.least_chunk_tokens
        if num_decoding == 0:
            return self.prefill_chunk_tokens
        return max(least, (self.prefill_chunk_tokens - num_decoding) // least * least)

    @property
    def context_tokens(self) -> Mapping[Attention, int]:
        """The longest prompt + answer per mode.

        Full attention never goes past the window that the model was trained for; hierarchical
        attention never looks at more than a window at once, so its prompts are bounded by
        configuration only.
        """
        room = self.kv_budget_tokens - self.ranks * SHARD_SLACK_TOKENS
        per_step = UNEVEN_TOKENS * self.ranks
        chunk = self.prefill_chunk_tokens
        full = (room - per_step) * chunk // (chunk + per_step)
        return {
            Attention.FULL: max(0, min(self.window_tokens, full)),
            Attention.HIERARCHICAL: self.hierarchical.max_context_tokens,
        }

    def kv_tokens(self, request: GenerateRequest) -> int:
        """KV that the request takes over all ranks, in tokens.

        The ranks' shards are not quite even. Of a hierarchical prompt only what is read again
        has KV, and the anchor, on every rank; the keys of chunks have budgets of their own.
        """
        slack = self.ranks * SHARD_SLACK_TOKENS
        if request.attention is Attention.FULL:
            return num_needed(request) + slack + self._uneven(len(request.prompt_ids))
        asked = num_needed(request) - request.question_start
        read_again = min(request.question_start, self._shortlist_tokens)
        num_read = read_again + len(request.prompt_ids) - request.question_start
        anchors = self.ranks * min(self.hierarchical.anchor_tokens, request.question_start)
        return read_again + asked + anchors + slack + self._uneven(num_read)

    @property
    def _shortlist_tokens(self) -> int:
        """The most context that is read again for a hierarchical answer."""
        sizes = self.hierarchical
        most = sizes.anchor_tokens + sizes.most_k * sizes.longest_read
        return min(self.window_tokens, most)

    def _uneven(self, num_read: int) -> int:
        num_steps = num_read // self.prefill_chunk_tokens + 1
        return self.ranks * UNEVEN_TOKENS * num_steps

    def check(self, request: GenerateRequest) -> None:
        """Raises EngineRefused or PromptTooLong for a request that can never run here."""
        refusal = _malformed(request, self.vocab_size)
        if refusal:
            raise EngineRefused(refusal)
        limit = self.context_tokens[request.attention]
        if num_needed(request) > limit:
            raise PromptTooLong(
                num_tokens=num_needed(request), limit=limit, attention=request.attention
            )
        if request.attention is Attention.HIERARCHICAL:
            self._check_question(request)
        self._check_answers(request)

    def _check_answers(self, request: GenerateRequest) -> None:
        if not 1 <= request.n <= self.max_running:
            raise EngineRefused(f"n must be from 1 to {self.max_running}, not {request.n}")
        needed = request.n * self.kv_tokens(request)
        if request.n > 1 and needed > self.kv_budget_tokens:
            fitting = self.kv_budget_tokens // self.kv_tokens(request)
            raise EngineRefused(
                f"{request.n} answers need KV for {needed} tokens; {self.kv_budget_tokens} fit: "
                f"{fitting} answers to this prompt would"
            )

    def _check_question(self, request: GenerateRequest) -> None:
        """Question and answer must leave the window room for anchor and one chunk, and there
        must be KV for what is read again."""
        sizes = self.hierarchical
        taken = min(request.question_start, sizes.anchor_tokens + sizes.longest_read)
        asked = num_needed(request) - request.question_start
        if asked + taken > self.window_tokens:
            raise EngineRefused(
                f"question and answer need {asked} tokens; beside a chunk of context the model's "
                f"window leaves {self.window_tokens - taken}"
            )
        needed = self.kv_tokens(request)
        if needed > self.kv_budget_tokens:
            raise EngineRefused(
                f"what hierarchical attention reads again, the question and the answer need KV "
                f"for {needed} tokens; {self.kv_budget_tokens} fit"
            )


def num_needed(request: GenerateRequest) -> int:
    """Tokens of prompt and answer."""
    return len(request.prompt_ids) + request.max_new_tokens


def _malformed(request: GenerateRequest, vocab_size: int) -> str | None:
    ids = request.prompt_ids
    if not ids:
        return "the prompt has no tokens"
    if request.max_new_tokens < 1:
        return f"max_new_tokens must be at least 1, not {request.max_new_tokens}"
    if min(ids) < 0 or max(ids) >= vocab_size:
        return f"the prompt holds a token id outside [0, {vocab_size})"
    if any(not 0 <= token < vocab_size for token in request.sampling.logit_bias):
        return f"logit_bias names a token id outside [0, {vocab_size})"
    if request.service_tier not in SERVICE_TIERS:
        return f"service_tier must be one of {', '.join(SERVICE_TIERS)}"
    return _bad_borders(request)


def _bad_borders(request: GenerateRequest) -> str | None:
    if request.attention is Attention.FULL:
        return None
    if not 0 <= request.question_start < len(request.prompt_ids):
        return "question_start must lie inside the prompt"
    starts = request.document_starts
    if list(starts) != sorted(set(starts)):
        return "document_starts must ascend"
    return None
