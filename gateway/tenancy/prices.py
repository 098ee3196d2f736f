"""What tokens cost and how cached ones count: pure sums over the policy's tables."""

from math import ceil

from gateway.answers import Usage
from gateway.api import Route
from gateway.policy import Policy, Price


def price_of(route: Route, prompt_tokens: int, policy: Policy) -> Price:
    """The route's first tier that is long enough for the prompt; free where none is set."""
    for tier in policy.prices.by_route()[route]:
        if tier.up_to_tokens is None or prompt_tokens <= tier.up_to_tokens:
            return tier
    return Price()


def cost_micros(price: Price, usage: Usage) -> int:
    """In millionths of the unit that prices per million tokens are in; rounded up."""
    fresh = usage.prompt_tokens - usage.cached_tokens
    return ceil(
        fresh * price.input
        + usage.cached_tokens * price.cached
        + usage.completion_tokens * price.output
    )


def most_micros(price: Price, prompt_tokens: int, new_tokens: int) -> int:
    """What such a request can cost at most."""
    dearest = max(price.input, price.cached)
    return ceil(prompt_tokens * dearest + new_tokens * price.output)


def counted_tokens(usage: Usage, policy: Policy) -> int:
    """What the request takes of its limit per minute: cached tokens as the policy counts them."""
    cached = ceil(usage.cached_tokens * policy.tenancy.cached_token_weight)
    return usage.prompt_tokens - usage.cached_tokens + cached + usage.completion_tokens
