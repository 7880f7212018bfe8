"""An activity: what is on offer, when, and how much of it."""

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from activities.models.access import AccessTerms
from activities.models.terms import DiscountTerms
from activities.querysets import ActivityQuerySet
from activities.statuses import ActivityStatus, EffectiveStatus, activity_status

STOCK_MAX = 10_000_000
PER_USER_MAX = 100
VALID_DAYS_MAX = 3650


def uid_make() -> str:
    """A random name for an activity, never used again: tells claims of a reused id apart."""
    return secrets.token_hex(8)


class Activity(DiscountTerms, AccessTerms):
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
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, editable=False, related_name="+", verbose_name=_("author")
    )
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        editable=False,
        related_name="+",
        verbose_name=_("submitted by"),
    )
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        editable=False,
        related_name="+",
        verbose_name=_("approved by"),
    )
    approved_alone = models.BooleanField(_("approved by its author"), default=False, editable=False)
    rejection = models.CharField(_("reason for rejecting"), max_length=200, blank=True, editable=False)

    objects = ActivityQuerySet.as_manager()

    class Meta:
        verbose_name = _("activity")
        verbose_name_plural = _("activities")
        permissions = (
            ("approve_activity", "Can approve and reject activities"),
            ("operate_activity", "Can publish, pause, resume, extend and void activities"),
        )
        ordering = ("-id",)
        indexes = (
            models.Index(fields=["status", "ends_at"], name="activity_status_end"),
            models.Index(fields=["starts_at"], name="activity_start"),
            # Every look into a wallet asks for those that are not settled: few, however many there ever were.
            models.Index(fields=["settled_at"], name="activity_settled"),
        )
        constraints = (
            *DiscountTerms.constraints_for("activity"),
            *AccessTerms.access_constraints("activity"),
            models.CheckConstraint(
                name="activity_issued_within_stock", condition=Q(issued__gte=0, issued__lte=F("stock_total"))
            ),
            models.CheckConstraint(name="activity_stock_positive", condition=Q(stock_total__gte=1)),
            models.CheckConstraint(name="activity_limit_positive", condition=Q(per_user_limit__gte=1)),
            models.CheckConstraint(name="activity_starts_before_end", condition=Q(starts_at__lt=F("ends_at"))),
            models.CheckConstraint(
                name="activity_four_eyes",
                condition=Q(approved_by=None)
                | Q(approved_alone=True)
                | (Q(author=None) | ~Q(approved_by=F("author")))
                & (Q(submitted_by=None) | ~Q(approved_by=F("submitted_by"))),
            ),
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
        self.access_clean()

    def effective_status(self, *, now: datetime) -> EffectiveStatus:
        """The status that holds at ``now``."""
        return activity_status(status=self.status, starts_at=self.starts_at, ends_at=self.ends_at, now=now)

    def coupon_expires_at(self, *, seized_at: datetime) -> datetime:
        """When a coupon seized then expires: N × 24 hours later, or at the fixed end."""
        if self.valid_days is not None:
            return seized_at + timedelta(days=self.valid_days)
        assert self.valid_until is not None  # activity_one_validity
        return self.valid_until
