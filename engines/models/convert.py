"""Turns a GGUF file into a Hugging Face folder; run as a process, since it imports torch.

Weights are written as float32, tied ones once. transformers reads the GGUF; what it is known to
read wrongly is put right here.
"""

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from engines.models.gguf_facts import read_pre_tokenizer_name

logger = logging.getLogger(__name__)

DIGITS_THEN_BYTES: Mapping[str, object] = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
    ],
}

PRE_TOKENIZERS: Mapping[str, Mapping[str, object]] = {"smollm": DIGITS_THEN_BYTES}
"""By tokenizer.ggml.pre. transformers 5.24 ignores it and would cut numbers unlike in training."""


def convert(source: Path, target: Path) -> None:
    """Write config, weights and tokenizer of `source` into the empty folder `target`."""
    folder, name = str(source.parent), source.name
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype="float32", local_files_only=True
    )
    _write_weights(model, target)
    _write_config(model, target)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
    tokenizer.save_pretrained(target)
    _mend_pre_tokenizer(target / "tokenizer.json", read_pre_tokenizer_name(source))


def _write_weights(model: PreTrainedModel, target: Path) -> None:
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def _write_config(model: PreTrainedModel, target: Path) -> None:
    config = model.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(name, None)
    config["architectures"] = [type(model).__name__]
    config["dtype"] = "float32"
    (target / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True))


def _mend_pre_tokenizer(path: Path, name: str | None) -> None:
    known = PRE_TOKENIZERS.get(name or "")
    if known is None:
        logger.warning("pre-tokenizer left as converted", extra={"pre_tokenizer": name})
        return
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["pre_tokenizer"] = known
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
