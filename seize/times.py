"""Redis' milliseconds as datetimes, exactly."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(unix_ms: int) -> datetime:
    """Unix ms as a datetime in UTC, without a float's rounding."""
    return _EPOCH + timedelta(milliseconds=unix_ms)
