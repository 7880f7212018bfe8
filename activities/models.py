"""The ledger: activities and the coupons that were given out."""

import secrets
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from activities.querysets import ActivityQuerySet, CouponQuerySet
from activities.statuses import ActivityStatus, CouponStatus, EffectiveStatus, activity_status, coupon_status

STOCK_MAX = 10_000_000
PER_USER_MAX = 100
VALID_DAYS_MAX = 3650


def uid_make() -> str:
    """A random name for an activity, never used again: tells claims of a reused id apart."""
    return secrets.token_hex(8)


class DiscountTerms(models.Model):
    """What a coupon is worth; an activity offers it, a coupon freezes it. Money in yuan."""

    class Kind(models.TextChoices):
        FIXED = "FIXED", _("Fixed amount")
        PERCENT = "PERCENT", _("Percentage")

    TERMS: ClassVar = ("kind", "min_spend", "amount_off", "pay_percent", "max_off")

    kind = models.CharField(_("kind"), max_length=8, choices=Kind, default=Kind.FIXED)
    min_spend = models.DecimalField(
        _("minimum spend"),
        max_digits=10,
        decimal_places=2,
        default=Decimal("0.00"),
        validators=[MinValueValidator(Decimal("0.00"))],
        help_text=_("Yuan; 0 = no minimum."),
    )
    amount_off = models.DecimalField(
        _("amount off"),
        max_digits=10,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal("0.01"))],
        help_text=_("Yuan; for a fixed amount."),
    )
    pay_percent = models.PositiveSmallIntegerField(
        _("pay percent"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(99)],
        help_text=_("80 = the shopper pays 80 %; for a percentage."),
    )
    max_off = models.DecimalField(
        _("at most off"),
        max_digits=10,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal("0.01"))],
        help_text=_("Yuan; optional cap of a percentage."),
    )

    class Meta:
        abstract = True

    @staticmethod
    def constraints_for(model: str) -> list[models.CheckConstraint]:
        """The database's own word on terms, named for ``model``.

        A comparison with NULL is unknown, and a CHECK lets the unknown pass: hence each ``isnull``.
        """
        fixed = Q(kind="FIXED", amount_off__isnull=False, amount_off__gt=0, pay_percent=None, max_off=None)
        percent = Q(kind="PERCENT", amount_off=None, pay_percent__isnull=False, pay_percent__gte=1, pay_percent__lte=99)
        return [
            models.CheckConstraint(name=f"{model}_kind_amount", condition=fixed | percent),
            models.CheckConstraint(name=f"{model}_min_spend", condition=Q(min_spend__gte=0)),
            models.CheckConstraint(name=f"{model}_max_off", condition=Q(max_off=None) | Q(max_off__gt=0)),
        ]


class Activity(DiscountTerms):
    """An offer of a limited number of coupons from ``starts_at`` until just before ``ends_at``."""

    Status = ActivityStatus

    name = models.CharField(_("name"), max_length=100)
    rules_text = models.TextField(_("rules"), max_length=2000, blank=True, help_text=_("Shown to shoppers."))
    valid_days = models.PositiveSmallIntegerField(
        _("valid days"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(VALID_DAYS_MAX)],
        help_text=_("N × 24 hours from seizing; or give a fixed end."),
    )
    valid_until = models.DateTimeField(_("valid until"), null=True, blank=True)
    starts_at = models.DateTimeField(_("starts at"))
    ends_at = models.DateTimeField(_("ends at"), help_text=_("Exclusive."))
    stock_total = models.PositiveIntegerField(
        _("total stock"), validators=[MinValueValidator(1), MaxValueValidator(STOCK_MAX)]
    )
    issued = models.PositiveIntegerField(_("issued"), default=0, editable=False)
    per_user_limit = models.PositiveIntegerField(
        _("limit per shopper"), default=1, validators=[MinValueValidator(1), MaxValueValidator(PER_USER_MAX)]
    )
    status = models.CharField(
        _("status"), max_length=10, choices=ActivityStatus, default=ActivityStatus.DRAFT, editable=False
    )
    void_reason = models.CharField(_("reason for voiding"), max_length=200, blank=True, editable=False)
    uid = models.CharField(max_length=32, unique=True, default=uid_make, editable=False)
    version = models.PositiveBigIntegerField(_("version"), default=1, editable=False)
    epoch = models.PositiveBigIntegerField(_("epoch"), default=0, editable=False)
    settled_at = models.DateTimeField(_("settled at"), null=True, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    objects = ActivityQuerySet.as_manager()

    class Meta:
        verbose_name = _("activity")
        verbose_name_plural = _("activities")
        ordering = ("-id",)
        indexes = (
            models.Index(fields=["status", "ends_at"], name="activity_status_end"),
            models.Index(fields=["starts_at"], name="activity_start"),
        )
        constraints = (
            *DiscountTerms.constraints_for("activity"),
            models.CheckConstraint(
                name="activity_issued_within_stock", condition=Q(issued__gte=0, issued__lte=F("stock_total"))
            ),
            models.CheckConstraint(name="activity_stock_positive", condition=Q(stock_total__gte=1)),
            models.CheckConstraint(name="activity_limit_positive", condition=Q(per_user_limit__gte=1)),
            models.CheckConstraint(name="activity_starts_before_end", condition=Q(starts_at__lt=F("ends_at"))),
            models.CheckConstraint(
                name="activity_one_validity",
                condition=Q(valid_days__isnull=False, valid_days__gte=1, valid_until=None)
                | Q(valid_days=None, valid_until__isnull=False, valid_until__gte=F("ends_at")),
            ),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """What a form should say before the database's constraints do."""
        if (self.valid_days is None) == (self.valid_until is None):
            raise ValidationError(
                {"valid_days": _("Give either days or a fixed end of validity, not both and not neither.")}
            )
        if self.valid_until and self.ends_at and self.valid_until < self.ends_at:
            raise ValidationError({"valid_until": _("Coupons must stay valid until the activity ends.")})
        if self.starts_at and self.ends_at and self.starts_at >= self.ends_at:
            raise ValidationError({"ends_at": _("The end must be after the start.")})
        if self.kind == self.Kind.FIXED:
            needed, unused = "amount_off", ["pay_percent", "max_off"]
        else:
            needed, unused = "pay_percent", ["amount_off"]
        if getattr(self, needed) is None:
            raise ValidationError({needed: _("This kind of coupon needs it.")})
        if given := [name for name in unused if getattr(self, name) is not None]:
            raise ValidationError({given[0]: _("Leave this empty for this kind of coupon.")})

    def effective_status(self, *, now: datetime) -> EffectiveStatus:
        """The status that holds at ``now``."""
        return activity_status(status=self.status, starts_at=self.starts_at, ends_at=self.ends_at, now=now)

    def coupon_expires_at(self, *, seized_at: datetime) -> datetime:
        """When a coupon seized then expires: N × 24 hours later, or at the fixed end."""
        if self.valid_days is not None:
            return seized_at + timedelta(days=self.valid_days)
        assert self.valid_until is not None  # activity_one_validity
        return self.valid_until


class Coupon(DiscountTerms):
    """One shopper's coupon with the terms of the moment of seizing."""

    Status = CouponStatus

    activity = models.ForeignKey(Activity, models.PROTECT, related_name="coupons", verbose_name=_("activity"))
    user_id = models.BigIntegerField(_("shopper"))
    seq = models.PositiveIntegerField(_("seq"), help_text=_("Which of the shopper's coupons of this activity."))
    status = models.CharField(_("status"), max_length=10, choices=CouponStatus, default=CouponStatus.UNUSED)
    seized_at = models.DateTimeField(_("seized at"))
    expires_at = models.DateTimeField(_("expires at"))

    objects = CouponQuerySet.as_manager()

    class Meta:
        verbose_name = _("coupon")
        verbose_name_plural = _("coupons")
        ordering = ("-id",)
        indexes = (
            models.Index(fields=["user_id", "id"], name="coupon_wallet"),
            models.Index(fields=["status", "expires_at"], name="coupon_expiry"),
        )
        constraints = (
            *DiscountTerms.constraints_for("coupon"),
            models.UniqueConstraint(fields=["activity", "user_id", "seq"], name="coupon_once"),
            models.CheckConstraint(name="coupon_seq_positive", condition=Q(seq__gte=1)),
        )

    def __str__(self) -> str:
        return f"{self.activity_id}:{self.user_id}:{self.seq}"

    def effective_status(self, *, now: datetime) -> CouponStatus:
        """The status that holds at ``now``; reads the activity."""
        return coupon_status(
            status=self.status, activity_stored=self.activity.status, expires_at=self.expires_at, now=now
        )
