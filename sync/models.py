"""Dead letters, kept until somebody decides, and the last reconciliation of each activity."""

import hashlib
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from activities.models import Activity
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
    decided_at = models.DateTimeField(_("decided at"), null=True)
    decided_by = models.CharField(_("decided by"), max_length=150, blank=True)
    decision_reason = models.CharField(_("reason for the decision"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        permissions = (("decide_deadletter", "Can replay and discard dead letters"),)
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


class Reconciliation(models.Model):
    """The last time an activity's Redis was held against its ledger, and what came of it."""

    class State(models.TextChoices):
        AGREES = "AGREES", _("Agrees")
        DIFFERS = "DIFFERS", _("Differs")
        SKIPPED = "SKIPPED", _("Skipped: a rebuild came between")

    activity = models.OneToOneField(
        Activity, models.CASCADE, primary_key=True, related_name="+", verbose_name=_("activity")
    )
    state = models.CharField(_("state"), max_length=8, choices=State)
    checked_at = models.DateTimeField(_("checked at"))
    claims = models.PositiveIntegerField(_("claims"), default=0, help_text=_("Queue, dead letters and rows together."))
    sold_first = models.IntegerField(_("sold, read first"), default=0)
    sold_last = models.IntegerField(_("sold, read last"), default=0)
    differing_runs = models.PositiveIntegerField(_("differing runs"), default=0)
    differences = models.JSONField(_("differences"), default=dict, blank=True)

    class Meta:
        verbose_name = _("reconciliation")
        verbose_name_plural = _("reconciliations")
        ordering = ("-checked_at",)

    def __str__(self) -> str:
        return f"{self.activity_id}: {self.state}"


class SaleCounts(models.Model):
    """What shoppers of an activity were told, kept each minute: Redis counts, and may be lost.

    ``totals``: name of outcome → how often; ``buckets``: [first second, won, refused] lists, ``width_s`` seconds wide.
    ``before`` holds both as they were when Redis began to count anew; ``life`` tells by what.
    """

    activity = models.OneToOneField(
        Activity, models.CASCADE, primary_key=True, related_name="+", verbose_name=_("activity")
    )
    totals = models.JSONField(default=dict)
    buckets = models.JSONField(default=list)
    width_s = models.PositiveIntegerField(default=0)
    life = models.CharField(max_length=40, blank=True)
    before = models.JSONField(default=dict)
    counted_at = models.DateTimeField()

    class Meta:
        verbose_name = _("counted outcomes")
        verbose_name_plural = _("counted outcomes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.activity_id}: {self.totals}"


class DayTotals(models.Model):
    """What the ledger entered of a day in the site's time zone: coupons won, redemptions, redemptions rolled back.

    Counted once, in the order of ids, by ``sync.days``; what came since is read from the ledger itself.
    """

    day = models.DateField(primary_key=True)
    won = models.PositiveIntegerField(default=0)
    redeemed = models.PositiveIntegerField(default=0)
    rolled_back = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = _("totals of a day")
        verbose_name_plural = _("totals of a day")
        default_permissions = ()
        ordering = ("day",)

    def __str__(self) -> str:
        return f"{self.day}: {self.won}"


class DayCursor(models.Model):
    """How far ``DayTotals`` have counted: ids of the ledger's tables, and the highest ones seen at the last run.

    What is seen now is counted by the next run: ids are given out before they are committed.
    """

    coupon_id = models.PositiveBigIntegerField(default=0)
    coupon_seen = models.PositiveBigIntegerField(default=0)
    redemption_id = models.PositiveBigIntegerField(default=0)
    redemption_seen = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name = _("totals of a day")
        verbose_name_plural = _("totals of a day")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.coupon_id}, {self.redemption_id}"
