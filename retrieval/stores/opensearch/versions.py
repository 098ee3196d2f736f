"""Index versions behind one alias: which is current, who filled it, and moving the alias."""

import re

from retrieval.api import IndexMismatch, SearchUnavailable
from retrieval.stores.opensearch.cluster import Cluster, RequestFailed
from retrieval.stores.opensearch.documents import Json

_EXISTS = "resource_already_exists_exception"


class Versions:
    """The indices `<alias>-v000001`, `<alias>-v000002`, …; the alias names the current one."""

    def __init__(self, cluster: Cluster, alias: str) -> None:
        self._cluster = cluster
        self._alias = alias
        self._name = re.compile(re.escape(alias) + r"-v(\d{6})")

    def name(self, number: int) -> str:
        return f"{self._alias}-v{number:06d}"

    def number(self, index: str) -> int:
        match = self._name.fullmatch(index)
        if match is None:
            raise SearchUnavailable(
                f"the alias {self._alias} names {index}, which is no version of Ringway's index"
            )
        return int(match[1])

    async def current(self) -> str | None:
        try:
            found = await self._cluster.read("GET", f"/_alias/{self._alias}")
        except RequestFailed as failure:
            if failure.status == 404:
                return None
            raise
        if len(found) != 1:
            raise SearchUnavailable(f"the alias {self._alias} names {len(found)} indices, not one")
        return next(iter(found))

    async def identity(self, index: str) -> Json:
        """What the index says it was filled by; empty for one that is not ours."""
        found = await self._cluster.read("GET", f"/{index}/_mapping")
        [described] = found.values()
        mappings = described.get("mappings") if isinstance(described, dict) else None
        meta = mappings.get("_meta") if isinstance(mappings, dict) else None
        return meta if isinstance(meta, dict) else {}

    async def exists(self, index: str) -> bool:
        try:
            await self._cluster.read("GET", f"/{index}/_mapping")
        except RequestFailed as failure:
            if failure.status == 404:
                return False
            raise
        return True

    async def create(self, index: str, body: Json) -> bool:
        """Whether it was created; False when it was there."""
        try:
            await self._cluster.call("PUT", f"/{index}", body)
        except RequestFailed as failure:
            if failure.kind == _EXISTS:
                return False
            raise
        return True

    async def drop(self, index: str) -> None:
        try:
            await self._cluster.call("DELETE", f"/{index}")
        except RequestFailed as failure:
            if failure.status != 404:
                raise

    async def close_writes(self, index: str) -> None:
        """Nothing is written to it from here on; what was under way is in."""
        await self._block_writes(index, closed=True)

    async def open_writes(self, index: str) -> None:
        await self._block_writes(index, closed=False)

    async def _block_writes(self, index: str, *, closed: bool) -> None:
        await self._cluster.call("PUT", f"/{index}/_settings", {"index.blocks.write": closed})
        await self._cluster.call("POST", f"/{index}/_refresh")

    async def point(self, index: str, *, instead_of: str | None) -> None:
        """Move the alias; searches see the old index or the new one, never both or none."""
        actions: list[Json] = [{"add": {"index": index, "alias": self._alias}}]
        if instead_of is not None:
            actions.insert(0, {"remove": {"index": instead_of, "alias": self._alias}})
        await self._cluster.call("POST", "/_aliases", {"actions": actions})


def check_identity(found: Json, expected: Json) -> None:
    """Raises IndexMismatch, naming the embedders, or all there is to say when those agree."""
    if found == expected:
        return
    if found.get("embedder") != expected["embedder"]:
        raise IndexMismatch(
            found=str(found.get("embedder", "something else")), expected=str(expected["embedder"])
        )
    raise IndexMismatch(found=_described(found), expected=_described(expected))


def _described(identity: Json) -> str:
    return "{embedder} with {dimension} numbers, analyzer {analyzer} and layout {layout}".format(
        **{"embedder": "?", "dimension": "?", "analyzer": "?", "layout": "?", **identity}
    )
