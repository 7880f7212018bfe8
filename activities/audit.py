"""Writing the audit: in the transaction of what it tells about, so that neither is there without the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model

from activities.models import AuditEvent

Action = AuditEvent.Action


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts.

    :param user_id: of the back office; None for what is not a person there.
    :param address: the client's, as text.
    """

    name: str
    user_id: int | None = None
    address: str = ""


SYSTEM = Actor("system")
COMMAND_LINE = Actor("command line")


def event_record(
    *,
    action: Action,
    subject: Model,
    by: Actor,
    now: datetime,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
    request_id: str | None = None,
) -> AuditEvent:
    """Write one event; of ``before`` and ``after`` what JSON can hold, the rest as text.

    :raises django.db.IntegrityError: this ``request_id`` was carried out before.
    """
    event = AuditEvent(
        at=now,
        actor_id=by.user_id,
        actor_name=by.name[:150],
        address=by.address[:45],
        action=action,
        subject_type=subject._meta.model_name or "",
        subject_id="" if subject.pk is None else str(subject.pk),
        subject_name=str(subject)[:200],
        before=_plain(before),
        after=_plain(after),
        reason=reason[:200],
        request_id=request_id,
    )
    event.save(force_insert=True)
    return event


def _plain(members: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: _text(value) for name, value in (members or {}).items()}


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str | list):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)
