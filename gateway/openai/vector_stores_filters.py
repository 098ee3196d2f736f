"""OpenAI's attribute filters as they go over the wire, and what they mean to a search."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.api import InvalidRequest
from gateway.openai.wire import Wire
from retrieval.api import AllOf, AnyOf, Comparator, Comparison, Filter, QueryRejected
from retrieval.filters import check_filter

Scalar = str | bool | int | float


class ComparisonBody(Wire):
    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: str = Field(min_length=1, max_length=64)
    value: Scalar | list[Scalar]


class CompoundBody(Wire):
    type: Literal["and", "or"]
    filters: "list[FilterBody]" = Field(min_length=1)


FilterBody = Annotated[ComparisonBody | CompoundBody, Field(discriminator="type")]
CompoundBody.model_rebuild()


def to_filter(body: ComparisonBody | CompoundBody) -> Filter:
    """Raises InvalidRequest for a filter that no search could hold to."""
    wanted = _filter(body)
    try:
        check_filter(wanted)
    except QueryRejected as error:
        raise InvalidRequest(
            f"Invalid value for 'filters': {error}.", param="filters", code="invalid_value"
        ) from error
    return wanted


def _filter(body: ComparisonBody | CompoundBody) -> Filter:
    if isinstance(body, CompoundBody):
        filters = tuple(_filter(each) for each in body.filters)
        return AllOf(filters) if body.type == "and" else AnyOf(filters)
    value = body.value
    held = tuple(map(_number, value)) if isinstance(value, list) else _number(value)
    return Comparison(body.key, Comparator(body.type), held)


def _number(value: Scalar) -> str | bool | float:
    return value if isinstance(value, str | bool) else float(value)
