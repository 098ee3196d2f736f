"""Bytes against real tensors: models of transformers, quantised matrices, the engine's own KV."""

import pytest

from engines.memory import kv_bytes_per_token, model_bytes, num_parameters, shape_of
from engines.memory.quantization import quantization_of
from engines.memory.weights import weights_of
from tests.engines.memory.published import GPT_OSS_20B, LLAMA_8B, LLAMA_70B

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
local_kv = pytest.importorskip("engines.local.kv")

TINY: dict[str, object] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

MOE: dict[str, object] = {"moe_intermediate_size": 24, "mlp_only_layers": [1], "head_dim": 16}

MODELS: list[tuple[str, dict[str, object]]] = [
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"tie_word_embeddings": True}),
    ("qwen2", {}),
    ("qwen3", {"head_dim": 24}),
    ("qwen3", {}),
    ("smollm3", {}),
    ("mistral", {"head_dim": 24}),
    ("phi3", {}),
    ("gemma3_text", {"head_dim": 24}),
    ("gpt_oss", {"num_local_experts": 3, "rope_parameters": {"rope_type": "default"}}),
    ("mixtral", {"num_local_experts": 4}),
    ("qwen3_moe", {"num_experts": 8, **MOE}),
    ("qwen2_moe", {"num_experts": 6, "shared_expert_intermediate_size": 48, **MOE}),
    ("olmo2", {}),
    ("gemma2", {"head_dim": 24}),
]


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_bytes_are_those_of_a_real_model(kind: str, changes: dict[str, object]) -> None:
    made = transformers.AutoConfig.for_model(kind, **{**TINY, **changes})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)
    shape = shape_of(made.to_dict())
    assert num_parameters(shape) == sum(p.numel() for p in model.parameters())
    assert model_bytes(shape, "bfloat16") == sum(p.nbytes for p in model.parameters())
    # What is written to a config.json leaves out what is a default.
    assert num_parameters(shape_of(made.to_diff_dict())) == num_parameters(shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kv_is_that_of_a_real_buffer(dtype: str) -> None:
    shape, num_tokens = shape_of({**LLAMA_8B, "num_hidden_layers": 3}), 100
    store = local_kv.KvStore(num_tokens)
    new_GTD = torch.zeros(8, num_tokens, 128, dtype=getattr(torch, dtype))
    for layer in range(shape.num_layers):
        store.write(layer, 0, new_GTD, new_GTD)
    read = [store.read(layer, 0, num_tokens) for layer in range(shape.num_layers)]
    real = sum(tensor.nbytes for pair in read for tensor in pair)
    assert num_tokens * kv_bytes_per_token(shape, dtype) == real


def awq_tensors(rows: int, columns: int, group: int) -> int:
    packed = torch.zeros(columns, rows * 4 // 32, dtype=torch.int32)
    zeros = torch.zeros(columns // group, rows * 4 // 32, dtype=torch.int32)
    scales = torch.zeros(columns // group, rows, dtype=torch.float16)
    return sum(tensor.nbytes for tensor in (packed, zeros, scales))


def gptq_tensors(rows: int, columns: int, group: int, bits: int) -> int:
    packed = torch.zeros(columns * bits // 32, rows, dtype=torch.int32)
    zeros = torch.zeros(columns // group, rows * bits // 32, dtype=torch.int32)
    scales = torch.zeros(columns // group, rows, dtype=torch.float16)
    index = torch.zeros(columns, dtype=torch.int32)
    return sum(tensor.nbytes for tensor in (packed, zeros, scales, index))


def fp8_tensors(rows: int, columns: int) -> int:
    from transformers.integrations.finegrained_fp8 import FP8Linear

    with torch.device("meta"):
        linear = FP8Linear(columns, rows, block_size=(128, 128))
    return sum(parameter.nbytes for parameter in linear.parameters())


ROWS, COLUMNS = 768, 512


@pytest.mark.parametrize(
    ("table", "real"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, awq_tensors(ROWS, COLUMNS, 128)),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 64},
            gptq_tensors(ROWS, COLUMNS, 64, 4),
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1},
            gptq_tensors(ROWS, COLUMNS, COLUMNS, 8),
        ),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8_tensors(ROWS, COLUMNS)),
        ({"quant_method": "fbgemm_fp8"}, ROWS * COLUMNS + 4 * ROWS),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ROWS * COLUMNS + 4 * ROWS),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            ROWS * COLUMNS // 2 + ROWS * COLUMNS // 64 * 4,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 8, "strategy": "channel"}},
                },
            },
            ROWS * COLUMNS + 2 * ROWS,
        ),
    ],
)
def test_a_quantised_matrix_takes_what_its_tensors_take(
    table: dict[str, object], real: int
) -> None:
    quantization = quantization_of(table)
    assert quantization is not None
    assert quantization.matrix_bytes(ROWS, COLUMNS) == real


def test_gpt_oss_takes_what_its_published_file_takes() -> None:
    """13,761,264,768 bytes is the total_size of openai/gpt-oss-20b's safetensors index."""
    shape = shape_of(GPT_OSS_20B)
    assert model_bytes(shape, "bfloat16") == pytest.approx(13_761_264_768, rel=1e-6)
    assert num_parameters(shape) == 20_914_757_184


def test_embeddings_norms_and_the_output_layer_keep_16_bits() -> None:
    plain = shape_of(LLAMA_8B)
    awq = shape_of({**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4}})
    ends = sum(w.num_elements for w in weights_of(plain) if "_proj" not in w.name)
    middle = num_parameters(plain) - ends
    assert ends > 2 * 128_256 * 4096
    assert model_bytes(awq, "float16") == 2 * ends + middle * (4 + (16 + 4) / 128) / 8


@pytest.mark.parametrize(
    ("skipped", "name", "covered"),
    [
        ("model.layers.1", "model.layers.1.mlp.up_proj", False),
        ("model.layers.1", "model.layers.11.mlp.up_proj", True),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", False),
        ("re:.*down_proj", "model.layers.7.mlp.down_proj", False),
        ("gate", "model.layers.7.mlp.gate_proj", True),
        ("nothing", "lm_head", False),
    ],
)
def test_exceptions_are_read_as_transformers_reads_them(
    skipped: str, name: str, covered: bool
) -> None:
    table = {"quant_method": "fp8", "modules_to_not_convert": [skipped]}
    quantization = quantization_of(table)
    assert quantization is not None
    assert quantization.covers(name) is covered


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_ranks_share_all_but_embeddings_and_norms(tp: int) -> None:
    shape = shape_of(LLAMA_70B)
    whole, part = model_bytes(shape, "bfloat16"), model_bytes(shape, "bfloat16", tp)
    kept = sum(2 * w.num_elements for w in weights_of(shape) if not w.is_split)
    assert kept == 2 * (128_256 * 8192 + (2 * 80 + 1) * 8192)
    assert part == kept + (whole - kept) // tp
