"""Tiny random models of every proven family, and what plain transformers answers with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCAB = 256
WINDOW_TOKENS = 8192

SIZES: dict[str, object] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": WINDOW_TOKENS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large enough that attention matters: with the default 0.02 every answer is the same.
    "initializer_range": 0.1,
}


PARTIAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 2.0,
    "original_max_position_embeddings": WINDOW_TOKENS // 2,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
}
FAMILIES: dict[str, dict[str, object]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "smollm3": {},
    "mistral": {"sliding_window": 50},
    "phi3": {"rope_parameters": PARTIAL_ROPE},
    "gemma3_text": {
        "head_dim": 16,
        "sliding_window": 50,
        "sliding_window_pattern": 2,
    },
    "gpt_oss": {
        "head_dim": 16,
        "sliding_window": 50,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "rope_parameters": YARN,
    },
}
NAMES = tuple(FAMILIES)


def save_family(name: str, folder: Path, **changes: object) -> Path:
    """A random but reproducible model of the family, as a Hugging Face folder."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **SIZES | FAMILIES[name] | changes)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, dtype=torch.float32
    )
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return folder


def prompt_of(num_tokens: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed * 100_003 + num_tokens)
    return torch.randint(3, VOCAB, (num_tokens,), generator=generator).tolist()


@dataclass(frozen=True, slots=True)
class Answer:
    """Greedy tokens, and the log-probabilities of the whole vocabulary before each."""

    tokens: list[int]
    logprobs: list[list[float]]


def plain_answer(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> Answer:
    """Greedy decoding by transformers alone, with its own attention and its own cache."""
    answer = Answer([], [])
    ids, cache = torch.tensor([list(prompt)]), None
    with torch.inference_mode():
        for _ in range(num_tokens):
            output = model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
            cache = output.cache
            row = output.logits[0, -1].float().log_softmax(-1)
            answer.logprobs.append(row.tolist())
            answer.tokens.append(int(row.argmax()))
            ids = torch.tensor([[answer.tokens[-1]]])
    return answer


def plain_model(folder: Path, attention: str) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention, local_files_only=True
    )
    model.train(False)
    return model
