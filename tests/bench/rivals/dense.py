"""transformers with `sdpa` in one process, prompt ids from a file.

Arguments: model folder, threads, tokens to decode, file of ids. Prints one JSON object.
"""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, DynamicCache


def main(model_dir: str, threads: int, num_decoded: int, ids_file: str) -> None:
    torch.set_num_threads(threads)
    with open(ids_file) as file:
        ids = torch.tensor([json.load(file)])
    model = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.bfloat16, attn_implementation="sdpa", local_files_only=True
    )
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        started = time.perf_counter()
        logits = model(ids, cache=cache, use_cache=True, logits_to_keep=1).logits
        prefilled = time.perf_counter()
        for _ in range(num_decoded):
            token = logits[:, -1:].argmax(-1)
            logits = model(token, cache=cache, use_cache=True).logits
        done = time.perf_counter()
    print(json.dumps({"prefill_s": prefilled - started, "decode_s": done - prefilled}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
