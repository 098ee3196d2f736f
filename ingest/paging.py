"""Pages of rows by their order of creation; knows no table by name."""

from collections.abc import Callable

from sqlalchemy import Column, ColumnElement, Connection, Row, Select

from ingest.stores_api import PageRequest

Rows = list[Row[*tuple[object, ...]]]


def page_rows(
    connection: Connection,
    statement: Select[*tuple[object, ...]],
    seq: Column[int],
    request: PageRequest,
    place_of: Callable[[str], int],
) -> tuple[Rows, bool]:
    """The rows, in the order asked for, and whether more follow in the direction of reading.

    `place_of` gives a cursor's `seq`, or raises what says that there is no such item.
    """
    if request.after is not None:
        statement = statement.where(_beyond(seq, place_of(request.after), request.ascending))
    if request.before is not None:
        statement = statement.where(_beyond(seq, place_of(request.before), not request.ascending))
    is_backward = request.before is not None and request.after is None
    is_rising = request.ascending is not is_backward
    ordered = statement.order_by(seq.asc() if is_rising else seq.desc())
    rows = list(connection.execute(ordered.limit(request.limit + 1)).all())
    shown = rows[: request.limit]
    return (shown[::-1] if is_backward else shown), len(rows) > request.limit


def _beyond(seq: Column[int], place: int, rises: bool) -> ColumnElement[bool]:
    return seq > place if rises else seq < place
