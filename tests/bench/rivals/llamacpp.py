"""llama.cpp on the same GGUF, prompt ids from a file; runs in the peers' own environment.

Arguments: GGUF, threads, tokens to decode, file of ids. Prints one JSON object.
"""

import json
import sys
import time

from llama_cpp import Llama


def main(gguf: str, threads: int, num_decoded: int, ids_file: str) -> None:
    with open(ids_file) as file:
        ids = json.load(file)
    model = Llama(
        gguf,
        n_ctx=len(ids) + num_decoded + 8,
        n_batch=512,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    started = time.perf_counter()
    model.eval(ids)
    token = model.sample(temp=0.0)
    prefilled = time.perf_counter()
    for _ in range(num_decoded):
        model.eval([token])
        token = model.sample(temp=0.0)
    done = time.perf_counter()
    print(json.dumps({"prefill_s": prefilled - started, "decode_s": done - prefilled}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
