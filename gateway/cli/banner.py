"""What `ringway up` prints when it is ready: an address and two examples that work."""

CURL = """\
curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
  "model": "{model}", "messages": [{{"role": "user", "content": "Name three primary colours."}}]
}}'"""

PYTHON = """\
from openai import OpenAI  # pip install openai

client = OpenAI(base_url="{url}/v1", api_key="unused")
file = client.files.create(file=open("contract.pdf", "rb"), purpose="user_data")
answer = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": [
        {{"type": "file", "file": {{"file_id": file.id}}}},
        {{"type": "text", "text": "When does the contract end?"}},
    ]}}],
    max_tokens=100, temperature=0, extra_body={{"fidelity": "retrieval"}},  # or hierarchical, full
)
print(answer.choices[0].message.content, answer.ringway["citations"])"""


def banner(*, url: str, model: str, data_dir: str, seconds: float) -> str:
    rule = "-" * 72
    return "\n".join(
        [
            rule,
            f"Ringway is ready after {seconds:.1f} s: {url}/v1   model: {model}",
            f"data: {data_dir}   metrics: {url}/metrics   stop: Ctrl-C",
            rule,
            CURL.format(url=url, model=model),
            "",
            PYTHON.format(url=url, model=model),
            rule,
        ]
    )
