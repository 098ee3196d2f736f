"""What servers say about too long prompts and other refusals, in their own words."""

import json
from email.utils import formatdate

import pytest

from engines.api import EngineBusy, EngineError, EngineLost, EngineRefused, PromptTooLong
from gateway.upstreams.refusals import error_in_stream, refusal

COUNTED = 111


def answered(status: int, body: object, **headers: str) -> EngineError:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return refusal(status, headers, raw, num_tokens=COUNTED, now_unix_s=1_000_000.0)


def openai(message: str, **fields: object) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


OVERFLOWS: list[tuple[str, int, object, int, int]] = [
    # Each with the file or report that its words were read in.
    (
        "vLLM that passes its limit on: vllm-project/vllm vllm/renderers/params.py, 017638d7",
        400,
        openai(
            "You passed 200000 input tokens and requested 1000 output tokens. However, the model's "
            "context length is only 131072 tokens, resulting in a maximum input length of 130072 "
            "tokens. Please reduce the length of the input prompt.",
            type="BadRequestError",
            param="input_tokens",
            code=400,
        ),
        200000,
        131072,
    ),
    (
        "vLLM before it counts: vllm-project/vllm vllm/renderers/params.py, 017638d7",
        400,
        openai(
            "You passed 9000000 input characters and requested 1000 output tokens. However, the "
            "model's context length is only 131072 tokens, resulting in a maximum input length of "
            "130072 tokens (at most 1300720 characters). Please reduce the length of the input "
            "prompt.",
            type="BadRequestError",
            param="input_text",
            code=400,
        ),
        COUNTED,
        131072,
    ),
    (
        "vLLM engine, full: vllm-project/vllm vllm/v1/engine/input_processor.py, 009daaee",
        400,
        openai(
            "The decoder prompt (length 131072) plus the number of requested output tokens (at "
            "least 1) is longer than the maximum model length of 131072. Make sure that "
            "`max_model_len` is no smaller than the number of text tokens (prompt + requested "
            "output tokens).",
        ),
        131072,
        131072,
    ),
    (
        "llama-cpp-python, completions: abetlen/llama-cpp-python llama_cpp/server/errors.py",
        400,
        openai(
            "This model's maximum context length is 512 tokens, however you requested 616 tokens "
            "(600 in your prompt; 16 for the completion). Please reduce your prompt; or completion "
            "length.",
            param="messages",
            code="context_length_exceeded",
        ),
        616,
        512,
    ),
    (
        "vLLM: vllm-project/vllm vllm/renderers/params.py, e126687a",
        400,
        openai(
            "This model's maximum context length is 131072 tokens. However, your prompt contains "
            "200000 input tokens, which exceeds this limit even without any output tokens. Please "
            "reduce the length of the input prompt.",
            type="BadRequestError",
            param="input_tokens",
            code=400,
        ),
        200000,
        131072,
    ),
    (
        "vLLM before it wrapped errors: vllm-project/vllm issue 20409",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested "
            "5000 tokens (4000 in the messages, 1000 in the completion). Please reduce the length "
            "of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        5000,
        4096,
    ),
    (
        "vLLM with the answer",
        400,
        openai(
            "This model's maximum context length is 8192 tokens. However, you requested 1000 output"
            " tokens and your prompt contains at least 7193 input tokens, for a total of at least "
            "8193 tokens.",
            code=400,
        ),
        7193,
        8192,
    ),
    (
        "vLLM engine: vllm-project/vllm vllm/v1/engine/input_processor.py, 009daaee",
        400,
        openai(
            "The decoder prompt (length 200000) is longer than the maximum model length of 131072. "
            "Make sure that `max_model_len` is no smaller than the number of text tokens."
        ),
        200000,
        131072,
    ),
    (
        "SGLang: sgl-project/sglang python/sglang/srt/managers/tokenizer_manager.py",
        400,
        openai(
            "The input (200000 tokens) is longer than the model's context length (131072 tokens)."
        ),
        200000,
        131072,
    ),
    (
        "SGLang, answer too: sgl-project/sglang python/sglang/srt/managers/tokenizer_manager.py",
        400,
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 131072 "
            "tokens. You requested a total of 140000 tokens: 130000 tokens from the input messages "
            "and 10000 tokens for the completion. Please reduce the number of tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
        140000,
        131072,
    ),
    (
        "SGLang's scheduler: sgl-project/sglang python/sglang/srt/managers/utils.py",
        400,
        openai(
            "ValueError: Input length (9000 tokens) exceeds the maximum allowed length (8187 "
            "tokens). Use a shorter input or enable --allow-auto-truncate."
        ),
        9000,
        8187,
    ),
    (
        "llama.cpp of 2025: ggml-org/llama.cpp tools/server/server.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the "
                "context size or enable context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000,
                "n_ctx": 8192,
            }
        },
        9000,
        8192,
    ),
    (
        "llama.cpp: ggml-org/llama.cpp tools/server/server-context.cpp and server-task.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9000 tokens) exceeds the available context size (8192 "
                "tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000,
                "n_ctx": 8192,
            }
        },
        9000,
        8192,
    ),
    (
        "OpenAI: bytedance/deer-flow issue 310",
        400,
        openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 200000 tokens (199899 in the messages, 101 in the functions). Please reduce the "
            "length of the messages or functions.",
            param="messages",
            code="context_length_exceeded",
        ),
        200000,
        128000,
    ),
    (
        "OpenAI without numbers",
        400,
        openai(
            "Your input exceeds the context window of this model. Please adjust your input.",
            code="context_length_exceeded",
        ),
        COUNTED,
        0,
    ),
    (
        "Azure",
        400,
        openai(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
            "300000 tokens. Please reduce the length of the messages.",
            code="context_length_exceeded",
        ),
        300000,
        272000,
    ),
    (
        "Anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
        },
        210000,
        200000,
    ),
    (
        "Anthropic with the answer",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > "
                "200000, decrease input length or `max_tokens` and try again",
            },
        },
        190000,
        200000,
    ),
    (
        "LiteLLM in front",
        400,
        openai(
            "litellm.ContextWindowExceededError: litellm.BadRequestError: This model's maximum "
            "context length is 4096 tokens. However, you requested 5000 tokens.",
            code="400",
        ),
        5000,
        4096,
    ),
]


@pytest.mark.parametrize(
    ("status", "body", "num_tokens", "limit"),
    [one[1:] for one in OVERFLOWS],
    ids=[one[0] for one in OVERFLOWS],
)
def test_every_server_s_overflow_is_a_prompt_too_long(
    status: int, body: object, num_tokens: int, limit: int
) -> None:
    error = answered(status, body)
    assert isinstance(error, PromptTooLong)
    assert (error.num_tokens, error.limit) == (num_tokens, limit)


def test_an_overflow_that_comes_inside_a_stream_is_one_too() -> None:
    data = json.dumps(openai("prompt is too long: 7 tokens > 5 maximum")).encode()
    assert isinstance(error_in_stream(data, num_tokens=COUNTED), PromptTooLong)
    data = json.dumps({"error": "Model crashed."}).encode()
    assert isinstance(error_in_stream(data, num_tokens=COUNTED), EngineLost)
    assert error_in_stream(b'{"choices":[]}', num_tokens=COUNTED) is None


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached: 429 tokens",
        "Invalid value: 'prompt is too long: 9 tokens > 5 maximum' is not a role",
        "max_tokens is too large: 99999. This model supports at most 4096 completion tokens",
    ],
)
def test_words_in_an_echo_are_no_overflow(message: str) -> None:
    error = answered(400, openai(message))
    assert type(error) is EngineRefused
    assert str(error) == message


def test_only_a_refusal_can_be_an_overflow() -> None:
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    assert not isinstance(answered(500, openai(message)), PromptTooLong)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (formatdate(1_000_012, usegmt=True), 12.0),
        ("soon", 1.0),
        ("", 1.0),
    ],
)
def test_a_busy_server_says_when_to_come_back(header: str, seconds: float) -> None:
    for status in (429, 503):
        error = answered(status, "", **{"retry-after": header})
        assert isinstance(error, EngineBusy)
        assert error.retry_after_s == seconds


@pytest.mark.parametrize("body", ["", "<html>Bad Gateway</html>", "[1]", '{"error": 5}', "\xff"])
@pytest.mark.parametrize("status", [400, 401, 404, 418, 500, 502, 504])
def test_a_body_of_any_shape_is_an_error_with_words(status: int, body: str) -> None:
    error = answered(status, body)
    assert isinstance(error, EngineRefused if status == 400 else EngineLost)
    assert str(error)


def test_the_gateway_s_own_credentials_are_no_fault_of_the_caller() -> None:
    error = answered(401, openai("Incorrect API key provided: sk-secret"))
    assert isinstance(error, EngineLost)
    assert "sk-secret" not in str(error)
