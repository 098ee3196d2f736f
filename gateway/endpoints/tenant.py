"""Whose a request is, as the door has found out."""

from fastapi import Request

from gateway.tenancy.api import Caller


def caller_of(request: Request) -> Caller:
    """The only tenant's where nobody needs a key."""
    caller = getattr(request.state, "caller", None)
    return caller if isinstance(caller, Caller) else Caller()


def tenant_of(request: Request) -> str:
    return caller_of(request).tenant
