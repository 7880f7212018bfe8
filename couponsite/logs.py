"""Which log records are worth a line."""

import logging

EXPECTED_SERVER_ERRORS = {503}  # "not ready", "busy": an answer of the contract, counted elsewhere


class Unexpected(logging.Filter):
    """Drop Django's line for each refused request: most shoppers of a sale lose, and that is no fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", 500)
        return status >= 500 and status not in EXPECTED_SERVER_ERRORS
