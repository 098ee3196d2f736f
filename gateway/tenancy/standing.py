"""Where a key stands, as values and as OpenAI's headers; and what month it is. Pure."""

import calendar
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil

from gateway.tenancy.api import Allowance, Grants, Standing


def standing_of(
    grants: Grants, used_requests: int, used_tokens: int, *, reset_s: float
) -> Standing:
    return Standing(
        requests=_allowance(grants.requests_per_min, used_requests, reset_s),
        tokens=_allowance(grants.tokens_per_min, used_tokens, reset_s),
    )


def standing_headers(standing: Standing) -> Mapping[str, str]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of the limits that the key has."""
    headers: dict[str, str] = {}
    for name, one in (("requests", standing.requests), ("tokens", standing.tokens)):
        if one is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(one.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(one.remaining)
            headers[f"x-ratelimit-reset-{name}"] = spelled_duration(one.reset_s)
    return headers


def spelled_duration(seconds: float) -> str:
    """As OpenAI spells it: `0s`, `120ms`, `1s`, `6m0s`; rounded up."""
    milliseconds = max(0, ceil(seconds * 1000))
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    whole_s = ceil(milliseconds / 1000)
    minutes, rest_s = divmod(whole_s, 60)
    return f"{minutes}m{rest_s}s" if minutes else f"{rest_s}s"


def month_of(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m")


def until_next_month_s(now_s: float) -> float:
    now = datetime.fromtimestamp(now_s, UTC)
    days = calendar.monthrange(now.year, now.month)[1]
    month_began_s = datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()
    return month_began_s + days * 86_400 - now_s


def _allowance(limit: int | None, used: int, reset_s: float) -> Allowance | None:
    if limit is None:
        return None
    is_whole = used <= 0
    return Allowance(
        limit=limit, remaining=max(0, limit - used), reset_s=0.0 if is_whole else max(0.0, reset_s)
    )
