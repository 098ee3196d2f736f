import logging

from gateway.logs import FieldsFormatter, RequestIdFilter, request_id


def test_a_line_names_its_request_and_its_fields() -> None:
    token = request_id.set("req-7")
    try:
        record = logging.makeLogRecord({"name": "gateway", "msg": "route", "levelname": "INFO"})
        record.__dict__["num_tokens"] = 12
        RequestIdFilter().filter(record)
        line = FieldsFormatter().format(record)
    finally:
        request_id.reset(token)

    assert line.endswith("INFO gateway req-7 route num_tokens=12")
