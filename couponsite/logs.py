"""Which log records are worth a line."""

import logging

EXPECTED_SERVER_ERRORS = {503}  # "not ready", "busy": an answer of the contract, counted elsewhere


class Unexpected(logging.Filter):
    """Drop Django's line for each refused request: most shoppers of a sale lose, and that is no fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", 500)
        return status >= 500 and status not in EXPECTED_SERVER_ERRORS


class OneLine(logging.Filter):
    """An exception that was dealt with is one line, without its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            record.msg, record.args = f"{record.getMessage()}: {record.exc_info[1]}", ()
            record.exc_info = record.exc_text = None
        return True
