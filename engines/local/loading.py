"""From a Hugging Face folder to a model that attends through us, or a refusal with its reason.

Knows which architectures are proven by tests; does not know ranks or sequences.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engines.api import EngineRefused
from engines.local.compiled_layers import CompiledLayers, layers_of
from engines.local.compiled_pass import CompiledPass
from engines.local.compiled_proof import agrees
from engines.local.device import CPU
from engines.local.few_rows import MAX_ROWS, quicken
from engines.local.hook import ATTENTION_NAME, AttentionPass, register
from engines.local.mesh import HeadGroup
from engines.local.passes import Stop
from engines.local.replicated import ReplicatedPass, SequenceRows
from engines.local.ring import RingGroup
from engines.local.sharding import refuse_uneven_heads, share_out

logger = logging.getLogger(__name__)

PROVEN = frozenset(
    ("llama", "qwen2", "qwen3", "smollm3", "mistral", "phi3", "gemma3_text", "gpt_oss")
)

SOFT_CAPPED = "soft-caps its attention scores, which no kernel with a log-sum-exp supports"
CHUNKED = "uses chunked attention"
LATENT = "uses multi-head latent attention"
LINEAR = "uses linear attention"

REFUSED: Mapping[str, str] = {
    "gemma2": SOFT_CAPPED,
    "gemma3": "is the vision model; serve the text part (gemma3_text)",
    "llama4": CHUNKED,
    "llama4_text": CHUNKED,
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "kimi_k2": LATENT,
    "qwen3_next": LINEAR,
    "minimax": LINEAR,
    "minimax_m1": LINEAR,
    "qwen3_5": LINEAR,
    "qwen3_5_text": LINEAR,
    "kimi_linear": LINEAR,
    "rwkv": LINEAR,
    "minicpm3": LATENT,
    "longcat_flash": LATENT,
    "glm4_moe_lite": LATENT,
    "gemma3n": "shares keys and values between layers",
    "gemma3n_text": "shares keys and values between layers",
    "mamba": "is a state-space model",
    "mamba2": "is a state-space model",
    "jamba": "mixes state-space layers into its attention",
    "falcon_h1": "mixes state-space layers into its attention",
}

TELLTALE: Mapping[str, str] = {
    "attn_logit_softcapping": SOFT_CAPPED,
    "attention_chunk_size": CHUNKED,
    "kv_lora_rank": LATENT,
    "linear_num_value_heads": LINEAR,
    "use_bidirectional_attention": "attends in both directions",
    "alibi": "adds a bias for the distance to its attention scores",
    "num_kv_shared_layers": "shares keys and values between layers",
}
"""Settings that change the attention of whatever architecture, unless they are off."""

FIXED_ROPE = frozenset(("default", "linear", "llama3", "yarn"))
SERVED_LAYERS = frozenset(("full_attention", "sliding_attention"))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Decoder:
    """A loaded causal language model, called with rows rather than batches.

    Ids and positions come from the CPU; logits stay on the model's `device`. `window_tokens` is
    the length that the model was trained for.
    """

    def __init__(
        self, module: nn.Module, config: PretrainedConfig, device: torch.device = CPU
    ) -> None:
        self._module = module
        self._device = device
        self._compiled: CompiledLayers | None = None
        self.vocab_size: int = config.vocab_size
        self.window_tokens: int = config.max_position_embeddings
        self.num_layers: int = config.num_hidden_layers
        types: list[str] = getattr(config, "layer_types", None) or []
        self.wide_layers: tuple[int, ...] = tuple(
            layer for layer, kind in enumerate(types) if kind == "full_attention"
        )
        """Layers without a sliding window, where the configuration tells; else empty."""
        self.shape: tuple[str, int, int] = (
            config.model_type,
            config.num_hidden_layers,
            config.hidden_size,
        )

    def quicken(self, num_threads: int) -> None:
        """Let few rows run through compiled kernels: whole layers where that is proven, else the
        modules that have one. On a GPU there is nothing to gain by these."""
        if self._device.type != "cpu":
            return
        compiled = layers_of(self._module)
        if compiled is not None and agrees(self._module, compiled):
            self._compiled = compiled
            logger.info("decode runs compiled layers", extra={"layers": len(compiled.layers)})
            return
        if compiled is not None:
            logger.warning("compiled layers differ from this model's own, which are used instead")
        num_quick = quicken(self._module, num_threads=num_threads)
        logger.info("decode runs the model's modules", extra={"compiled_modules": num_quick})

    def decode(
        self,
        ids_T: Tensor,
        positions_T: Tensor,
        parts: Sequence[SequenceRows],
        group: RingGroup,
        stop: Stop,
    ) -> Tensor:
        """Logits [T, V] of one new row per sequence on rank 0; no rows on the others.

        The one place that decides which way decode takes. Raises StepAborted.
        """
        if self._compiled is not None and len(parts) <= MAX_ROWS:
            return CompiledPass(self._compiled, parts, group, stop).logits(ids_T, positions_T)
        keep = range(len(parts)) if group.rank == 0 else ()
        return self.forward(ids_T, positions_T, ReplicatedPass(parts, group, stop), keep)

    def forward(
        self, ids_T: Tensor, positions_T: Tensor, attending: AttentionPass, keep: Sequence[int]
    ) -> Tensor:
        """Logits [K, V] of the rows `keep`; with none the output layer costs nothing.

        Raises what `attending` raises.
        """
        logits: Tensor = self._module(
            input_ids=ids_T.long()[None].to(self._device),
            position_ids=positions_T[None].to(self._device),
            use_cache=False,
            logits_to_keep=torch.tensor(keep, dtype=torch.long, device=self._device),
            attending=attending,
        ).logits[0]
        return logits


def load_model(
    model_dir: Path, dtype: str, heads: HeadGroup | None = None, device: torch.device = CPU
) -> Decoder:
    """The model in `model_dir`, ready for inference; with `heads` this process's share of it.

    Safetensors stay mapped from the file where the dtype is the file's own, so ranks on one host
    share their pages; a share is a copy, and so is what goes to a GPU. Raises EngineRefused with
    the reason.
    """
    config = refuse_unproven(model_dir)
    if heads is not None:
        refuse_uneven_heads(config, heads.size)
    register()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    module: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        model_dir,
        dtype=DTYPES[dtype],
        attn_implementation=ATTENTION_NAME,
        local_files_only=True,
    )
    module.train(False)
    if heads is not None:
        share_out(module, heads)  # first, so that no GPU need hold the whole model
    nn.Module.to(module, device)
    return Decoder(module, module.config, device)


def refuse_unproven(model_dir: Path) -> Mapping[str, object]:
    """The folder's config.json. Raises EngineRefused unless all of it is proven to be exact."""
    path = model_dir / "config.json"
    if not path.is_file():
        raise EngineRefused(f"{model_dir} is no Hugging Face folder: it has no config.json")
    config = cast(dict[str, object], json.loads(path.read_text()))
    reason = next(_reasons(config), None)
    if reason is not None:
        raise EngineRefused(f"{config.get('model_type')} {reason}")
    return config


def _reasons(config: Mapping[str, object]) -> Iterator[str]:
    model_type = config.get("model_type")
    if model_type in REFUSED:
        yield REFUSED[str(model_type)]
    elif model_type not in PROVEN:
        yield f"is not among the proven architectures: {', '.join(sorted(PROVEN))}"
    yield from (reason for name, reason in TELLTALE.items() if config.get(name))
    layer_types = config.get("layer_types") or []
    assert isinstance(layer_types, list)
    for layer_type in sorted(set(layer_types) - SERVED_LAYERS):
        yield f"has layers of type {layer_type}"
    for rope_type in sorted(set(_rope_types(config)) - FIXED_ROPE):
        yield f"has a rotary embedding that changes with the prompt's length ({rope_type})"


def _rope_types(config: Mapping[str, object]) -> Iterator[str]:
    renamed = {"su": "longrope", "yarn": "longrope"} if config["model_type"] == "phi3" else {}
    for name in ("rope_parameters", "rope_scaling"):
        rope = config.get(name)
        if isinstance(rope, dict):
            for part in (rope, *(v for v in rope.values() if isinstance(v, dict))):
                rope_type = part.get("rope_type", part.get("type"))
                if rope_type is not None:
                    yield renamed.get(str(rope_type), str(rope_type))
