"""What the gateway's rooms share: routes, fidelities and the errors raised on purpose.

Knows nothing of HTTP; `gateway.errors` holds the only table from these errors to statuses.
"""

from enum import StrEnum


class Route(StrEnum):
    """How a prompt is answered, cheapest first."""

    RETRIEVAL = "retrieval"
    HIERARCHICAL = "hierarchical"
    FULL = "full"


class CountKind(StrEnum):
    """Whether tokens were counted by the model's own tokenizer."""

    EXACT = "exact"
    ESTIMATED = "estimated"


class Fidelity(StrEnum):
    """What the caller asks for: a route, or `auto` to leave the choice to the policy."""

    AUTO = "auto"
    RETRIEVAL = "retrieval"
    HIERARCHICAL = "hierarchical"
    FULL = "full"


class GatewayError(Exception):
    """Base of all that the gateway raises on purpose."""


class InvalidRequest(GatewayError):
    """The request breaks a rule of the wire format; `param` names where."""

    def __init__(self, message: str, *, param: str | None, code: str | None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class UnsupportedParameter(GatewayError):
    """A known OpenAI parameter, or a value of one, that Ringway does not serve."""

    def __init__(self, param: str, *, detail: str = "") -> None:
        tail = f": {detail}" if detail else ""
        super().__init__(f"Unsupported parameter: '{param}' is not supported here{tail}.")
        self.param = param
        self.detail = detail


class UnknownModel(GatewayError):
    def __init__(self, model: str) -> None:
        super().__init__(f"The model '{model}' does not exist or you do not have access to it.")
        self.model = model


class Unauthorized(GatewayError):
    """No key was sent, or one that is not known."""


class BodyTooLarge(GatewayError):
    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"The request body is larger than {limit_bytes} bytes.")
        self.limit_bytes = limit_bytes


class NoEngineFits(GatewayError):
    """No permitted route holds the prompt and its answer.

    `fits` is the cheapest route that would. `exact` is false when the prompt was refused by a
    lower bound on its tokens, before counting.
    """

    def __init__(
        self, *, wanted: str, num_tokens: int, limit: int, fits: Route | None, exact: bool = True
    ) -> None:
        counted = "" if exact else "at least "
        way_out = (
            f"The cheapest route that would fit is '{fits}': send fidelity=\"{fits}\"."
            if fits
            else "No route would fit; shorten the prompt."
        )
        super().__init__(
            f"This prompt and its answer need {counted}{num_tokens} tokens; the limit for "
            f"fidelity '{wanted}' is {limit} tokens. {way_out}"
        )
        self.num_tokens = num_tokens
        self.limit = limit
        self.fits = fits


class ContextRequired(GatewayError):
    """Retrieval was asked for, and the prompt holds nothing to search in."""

    def __init__(self) -> None:
        super().__init__(
            "Retrieval needs something to search: attach files, send `documents`, or put a long "
            "text before the question."
        )


class RouteForbidden(GatewayError):
    def __init__(self, route: Route) -> None:
        super().__init__(f"The policy of this gateway does not allow the route '{route}'.")
        self.route = route


class TemplateRefused(GatewayError):
    """The model's chat template does not accept these messages."""


class Draining(GatewayError):
    """The gateway stops; another replica, or the next process, will answer."""

    def __init__(self) -> None:
        super().__init__("This gateway is shutting down; send the request again.")
        self.retry_after_s = 2


class ClientLeft(GatewayError):
    """The client closed its connection before the answer was complete."""
