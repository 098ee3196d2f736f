"""A small text in a store, and questions to it."""

from retrieval.analyzer import analyze_joined
from retrieval.api import Candidates, Filter, Store, StoreQuery
from tests.contracts.store_makers import EMBEDDER
from tests.retrieval.chunks import chunk, embedded

SENTENCES = (
    "The deposition of Ms. Alvarez was taken on the ninth of March.",
    "Payment is due within thirty days of the invoice.",
    "The tenant shall keep the premises in good repair.",
    "Call max_num_seqs before parseHTTPRequest in the engine.",
    "An indemnity survives the termination of this agreement.",
)


async def ask(store: Store, query: str, *document_ids: str, limit: int = 10) -> Candidates:
    [vector] = await EMBEDDER.embed([query])
    return await store.search(
        StoreQuery(
            terms=analyze_joined(query),
            vector=vector,
            document_ids=document_ids,
            num_candidates=limit,
        )
    )


async def fill(store: Store, document_id: str = "doc", generation: str = "g1") -> None:
    start = 0
    chunks = []
    for sentence in SENTENCES:
        chunks.append(chunk(sentence, document_id=document_id, generation=generation, start=start))
        start += len(sentence) + 1
    await store.write(await embedded(EMBEDDER, *chunks))


async def ask_collection(
    store: Store, query: str, collection: str, wanted: Filter | None = None, *, limit: int = 50
) -> Candidates:
    [vector] = await EMBEDDER.embed([query])
    return await store.search(
        StoreQuery(
            terms=analyze_joined(query),
            vector=vector,
            document_ids=None,
            collection=collection,
            filter=wanted,
            num_candidates=limit,
        )
    )
