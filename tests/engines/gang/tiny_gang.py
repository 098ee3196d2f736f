"""A supervisor over real ranks of a tiny random model, for tests."""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

from engines.api import GenerateRequest, Sampling
from engines.config import EngineConfig, HierarchicalConfig
from engines.gang.launcher import ForkLauncher
from engines.gang.limits import GangLimits
from engines.gang.supervisor import Supervisor, SupervisorParts
from tests.engines.gang.scripted_gang import TOKENIZER
from tests.engines.local.families import VOCAB, save_family

WINDOW_TOKENS = 20_000
CHUNK_TOKENS = 256


def tiny_config(
    folder: Path, model: Mapping[str, object] | None = None, **changes: object
) -> EngineConfig:
    save_family("llama", folder, max_position_embeddings=WINDOW_TOKENS, **(model or {}))
    values: dict[str, object] = {
        "model_dir": folder,
        "model_name": "tiny",
        "prefill_chunk_tokens": CHUNK_TOKENS,
        "hierarchical": HierarchicalConfig(chunk_tokens=64, anchor_tokens=16, top_k=2),
    }
    return EngineConfig(**{**values, **changes})  # type: ignore[arg-type]


def tiny_supervisor(
    config: EngineConfig,
    *,
    rank_main: str = "tests.engines.gang.tiny_rank:main",
    log: Path | None = None,
) -> Supervisor:
    """Ranks run `rank_main` and write to `log`."""
    limits = GangLimits.of(
        config, vocab_size=VOCAB, window_tokens=WINDOW_TOKENS, kv_budget_tokens=60_000
    )
    return Supervisor(
        SupervisorParts(
            config=config,
            limits=limits,
            kv_bytes_per_token=1,
            tokenizer=TOKENIZER,
            launcher=fork_launcher(rank_main),
            log=log,
        )
    )


def fork_launcher(rank_main: str) -> ForkLauncher:
    return ForkLauncher(
        rank_main=rank_main,
        preload=("transformers.models.auto.modeling_auto", "transformers.models.llama"),
    )


def greedy(ids: Sequence[int], new: int) -> GenerateRequest:
    return GenerateRequest(
        request_id="r",
        prompt_ids=array("i", ids),
        max_new_tokens=new,
        sampling=Sampling(temperature=0),
    )
