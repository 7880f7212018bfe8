"""Redis' milliseconds as datetimes, exactly."""

from datetime import UTC, datetime


def moment_of(unix_ms: int) -> datetime:
    """Unix ms as a datetime in UTC, without a float's rounding."""
    return datetime.fromtimestamp(unix_ms // 1000, tz=UTC).replace(microsecond=unix_ms % 1000 * 1000)
