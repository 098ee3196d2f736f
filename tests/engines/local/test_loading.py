"""What is refused, with which reason."""

import json
from pathlib import Path

import pytest

from engines.api import EngineRefused
from engines.local.loading import TELLTALE, load_model, refuse_unproven

LLAMA: dict[str, object] = {"model_type": "llama", "rope_parameters": {"rope_type": "default"}}


def folder_with(folder: Path, config: dict[str, object]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gemma2"}, "soft-cap"),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, "soft-cap"),
        ({"model_type": "gemma3"}, "vision"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "both directions"),
        ({"model_type": "llama4_text"}, "chunked attention"),
        ({"model_type": "qwen3_next"}, "linear attention"),
        ({"model_type": "deepseek_v3"}, "latent attention"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"linear_num_value_heads": 4}, "linear attention"),
        ({"attention_chunk_size": 8192}, "chunked attention"),
        ({"num_kv_shared_layers": 10}, "shares keys and values"),
        ({"alibi": True}, "bias for the distance"),
        ({"layer_types": ["chunked_attention"]}, "chunked_attention"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "dynamic"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"model_type": "phi3", "rope_scaling": {"type": "su"}}, "longrope"),
        ({"model_type": "phi3", "rope_scaling": {"type": "yarn"}}, "longrope"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "longrope"),
        ({"model_type": "opt"}, "not among the proven"),
        ({"model_type": None}, "not among the proven"),
    ],
)
def test_an_unproven_model_is_refused_with_its_reason(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineRefused, match=reason):
        load_model(folder_with(tmp_path, LLAMA | changes), "float32")


@pytest.mark.parametrize("rope_type", ["default", "linear", "llama3", "yarn"])
def test_a_rotary_embedding_that_never_changes_is_served(rope_type: str, tmp_path: Path) -> None:
    changes = {"rope_parameters": {"rope_type": rope_type}}
    refuse_unproven(folder_with(tmp_path, LLAMA | changes))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineRefused, match=r"config\.json"):
        load_model(tmp_path, "float32")


def test_settings_that_are_off_do_not_matter(tmp_path: Path) -> None:
    off = dict.fromkeys(TELLTALE, None) | {"alibi": False, "num_kv_shared_layers": 0}
    assert refuse_unproven(folder_with(tmp_path, LLAMA | off))["model_type"] == "llama"
