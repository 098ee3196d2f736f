"""/admin/routing: the policy in force, changing it, going back, its history, and dry runs."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from gateway.admin.access import AdminDoor, admin_of
from gateway.admin.board import PolicyBoard, PreconditionRequired
from gateway.admin.dry_run import dry_run
from gateway.admin.history import Change
from gateway.admin.shapes import Shapes
from gateway.api import InvalidRequest
from gateway.bodies import read_body
from gateway.policy import Policy, parse_policy, policy_of
from gateway.replies import json_response

MAX_BODY_BYTES = 256 * 2**10


class RollbackBody(msgspec.Struct, forbid_unknown_fields=True):
    version: str | None = None


def admin_router(board: PolicyBoard, shapes: Shapes, door: AdminDoor) -> APIRouter:
    router = APIRouter(prefix="/admin", dependencies=[Depends(door)])

    @router.get("/routing")
    async def get_routing() -> Response:
        await board.refresh()
        return _policy_reply(board.current)

    @router.put("/routing")
    async def put_routing(request: Request) -> Response:
        """The whole policy: what the body does not name has its default, as in the file."""
        expected = _if_match(request)
        if expected is None:
            raise PreconditionRequired(board.current.version)
        policy = await _sent_policy(request)
        change = await board.replace(policy, expected=expected, who=admin_of(request))
        return _policy_reply(change.policy, _change_object(change))

    @router.post("/routing/rollback")
    async def rollback_routing(request: Request) -> Response:
        raw = await read_body(request, MAX_BODY_BYTES)
        try:
            body = msgspec.json.decode(raw or b"{}", type=RollbackBody)
        except msgspec.DecodeError as error:
            raise _refused(str(error)) from error
        change = await board.rollback(
            body.version, expected=_if_match(request), who=admin_of(request)
        )
        return _policy_reply(change.policy, _change_object(change))

    @router.get("/routing/history")
    async def history(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> Response:
        changes = await board.changes(limit)
        data = [_change_object(change) for change in changes]
        return json_response({"object": "list", "data": data})

    @router.get("/routing/versions/{version}")
    async def get_version(version: str) -> Response:
        change = await board.version(version)
        return _policy_reply(change.policy, _change_object(change))

    @router.post("/routing/dry-run")
    async def dry_run_routing(request: Request) -> Response:
        proposed = await _sent_policy(request)
        current = board.current
        report = await asyncio.to_thread(dry_run, tuple(shapes), current, proposed)
        versions = {"version": current.version, "proposed_version": proposed.version}
        return json_response({"object": "routing.dry_run", **versions, "report": report})

    return router


def _policy_reply(policy: Policy, change: Mapping[str, object] | None = None) -> Response:
    body: dict[str, object] = {"object": "routing.policy", "version": policy.version}
    if change is not None:
        body["change"] = change
    return json_response(
        {**body, "policy": policy},
        headers={"etag": f'"{policy.version}"', "cache-control": "no-store"},
    )


def _change_object(change: Change) -> Mapping[str, object]:
    at = datetime.fromtimestamp(change.changed_at, UTC)
    return {
        "seq": change.seq,
        "version": change.version,
        "old_version": change.old_version,
        "cause": change.cause.value,
        "who": change.who,
        "changed_at": at.isoformat(timespec="milliseconds"),
    }


def _if_match(request: Request) -> str | None:
    """The version that If-Match names. `*` is not taken: it would overwrite what nobody read."""
    sent = request.headers.get("if-match")
    if sent is None or sent.strip() == "*":
        return None
    return sent.strip().removeprefix("W/").strip('"')


async def _sent_policy(request: Request) -> Policy:
    raw = await read_body(request, MAX_BODY_BYTES)
    try:
        if "yaml" in request.headers.get("content-type", ""):
            return parse_policy(raw.decode())
        return policy_of(msgspec.json.decode(raw))
    except ValueError as error:  # of msgspec and of decoding, too
        raise _refused(str(error)) from error


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"The policy is refused: {why}", param=None, code="invalid_policy")
