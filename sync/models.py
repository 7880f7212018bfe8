"""Dead letters: claims that cannot become coupons, kept until somebody decides."""

import hashlib
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from seize.claims import Claim, claim_parse
from seize.queue import Entry


class DeadLetter(models.Model):
    """A claim that no retry can turn into a coupon. It counts as claimed until it is discarded.

    One letter per queue entry, whatever becomes of it: ``fingerprint`` covers activity, uid,
    user, seq and time, and also entries too malformed to have them.
    """

    class Reason(models.TextChoices):
        MALFORMED = "MALFORMED", _("Not a claim")
        NO_ACTIVITY = "NO_ACTIVITY", _("No such activity")
        OTHER_UID = "OTHER_UID", _("Claim of an earlier activity with this id")
        NO_ROOM = "NO_ROOM", _("More claims than coupons")
        CONFLICT = "CONFLICT", _("The shopper has this coupon from another time")
        DATA = "DATA", _("The database refused it")

    class State(models.TextChoices):
        WAITING = "WAITING", _("Waiting for a decision")
        REPLAYED = "REPLAYED", _("Replayed")
        DISCARDED = "DISCARDED", _("Discarded")

    activity_id = models.BigIntegerField(_("activity"), null=True)
    uid = models.CharField(max_length=32, blank=True)
    user_id = models.BigIntegerField(_("shopper"), null=True)
    seq = models.PositiveIntegerField(_("seq"), null=True)
    seized_ms = models.BigIntegerField(_("seized (Unix ms)"), null=True)
    field = models.CharField(_("queue field"), max_length=200)
    value = models.CharField(_("queue value"), max_length=200)
    fingerprint = models.CharField(max_length=64, unique=True)
    reason = models.CharField(_("reason"), max_length=12, choices=Reason)
    detail = models.CharField(_("detail"), max_length=200, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=State, default=State.WAITING)
    created_at = models.DateTimeField(_("since"), auto_now_add=True)

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        ordering = ("-id",)
        indexes = (
            models.Index(fields=["activity_id", "user_id"], name="letter_claim"),
            models.Index(fields=["state", "created_at"], name="letter_state"),
        )

    def __str__(self) -> str:
        return f"{self.field} ({self.reason})"

    @classmethod
    def of(cls, entry: Entry, *, reason: str, detail: str = "") -> Self:
        """An unsaved letter for a queue entry."""
        claim = claim_parse(entry)
        parsed: dict[str, int | str] = {}
        if isinstance(claim, Claim):
            parsed = {
                "activity_id": claim.activity_id,
                "uid": claim.uid,
                "user_id": claim.user_id,
                "seq": claim.seq,
                "seized_ms": claim.seized_ms,
            }
        return cls(
            **parsed,
            field=_storable(entry.field),
            value=_storable(entry.value),
            fingerprint=fingerprint(entry),
            reason=reason,
            detail=detail[:200],
        )


def fingerprint(entry: Entry) -> str:
    """SHA-256 of a queue entry's exact bytes, as hex."""
    text = f"{entry.field}\0{entry.value}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _storable(text: str) -> str:
    """Any bytes as text that every database takes."""
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return shown.replace("\0", "\\x00")[:200]
