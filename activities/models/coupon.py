"""A shopper's coupon: one row of the ledger."""

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from activities.models.activity import Activity
from activities.models.fields import AsciiField
from activities.models.terms import DiscountTerms
from activities.querysets import CouponQuerySet
from activities.statuses import CouponStatus, coupon_status


class Coupon(DiscountTerms):
    """One shopper's coupon with the terms of the moment of seizing."""

    Status = CouponStatus

    activity = models.ForeignKey(Activity, models.PROTECT, related_name="coupons", verbose_name=_("activity"))
    user_id = models.BigIntegerField(_("shopper"))
    seq = models.PositiveIntegerField(_("seq"), help_text=_("Which of the shopper's coupons of this activity."))
    status = models.CharField(_("status"), max_length=10, choices=CouponStatus, default=CouponStatus.UNUSED)
    seized_at = models.DateTimeField(_("seized at"))
    expires_at = models.DateTimeField(_("expires at"))
    # Database defaults: a worker of the version before inserts without these columns.
    order_id = AsciiField(
        _("order"), max_length=64, blank=True, default="", db_default="", help_text=_("That redeemed it.")
    )
    redeemed_at = models.DateTimeField(_("redeemed at"), null=True, blank=True)
    uses = models.PositiveIntegerField(
        _("uses"), default=0, db_default=0, help_text=_("Redemptions so far, rolled back ones too.")
    )

    objects = CouponQuerySet.as_manager()

    class Meta:
        verbose_name = _("coupon")
        verbose_name_plural = _("coupons")
        permissions = (
            ("roll_back_coupon", "Can roll back redemptions"),
            ("export_coupon", "Can export winners and redemptions"),
            ("view_personal_data", "Can see shoppers' ids in full"),
        )
        ordering = ("-id",)
        indexes = (
            models.Index(fields=["user_id", "id"], name="coupon_wallet"),
            models.Index(fields=["status", "expires_at"], name="coupon_expiry"),
            # The status first: by an index that begins with the activity its foreign key may be checked, and then each
            # change of a status locks the activity's row and waits on drains.
            models.Index(fields=["status", "activity"], name="coupon_status_activity"),
        )
        constraints = (
            *DiscountTerms.constraints_for("coupon"),
            models.UniqueConstraint(fields=["activity", "user_id", "seq"], name="coupon_once"),
            models.CheckConstraint(name="coupon_seq_positive", condition=Q(seq__gte=1)),
            models.CheckConstraint(
                name="coupon_redeemed_by_an_order",
                condition=Q(status="REDEEMED", redeemed_at__isnull=False, uses__gte=1) & ~Q(order_id="")
                | ~Q(status="REDEEMED") & Q(redeemed_at=None, order_id=""),
            ),
        )

    def __str__(self) -> str:
        return f"{self.pk} / {self.activity_id}"

    def effective_status(self, *, now: datetime) -> CouponStatus:
        """The status that holds at ``now``; reads the activity."""
        return coupon_status(
            status=self.status, activity_stored=self.activity.status, expires_at=self.expires_at, now=now
        )

    def status_when_unused(self, *, now: datetime) -> CouponStatus:
        """What an unused coupon of this kind would be at ``now``; reads the activity."""
        unused = CouponStatus.UNUSED
        return coupon_status(status=unused, activity_stored=self.activity.status, expires_at=self.expires_at, now=now)
