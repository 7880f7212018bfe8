"""The ledger of uses: an entry when an order redeems a coupon, another when it gives it back."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Round
from django.utils.translation import gettext_lazy as _

from activities.models.activity import Activity
from activities.models.append_only import AppendOnly, AppendOnlyQuerySet
from activities.models.coupon import Coupon
from activities.models.fields import AsciiField
from activities.statuses import CouponStatus

ORDER_ID_MAX = 64


class RedemptionQuerySet(AppendOnlyQuerySet):
    """Entries, to read and to add to."""


class Redemption(AppendOnly):
    """One entry. ``turn`` says which use of the coupon it belongs to: 1, 2, …; money in yuan.

    The unique constraints are the last word on "one live redemption a coupon": a turn is entered and
    given back at most once each, and so is an order.
    """

    class Entry(models.TextChoices):
        REDEEM = "REDEEM", _("Redeemed")
        ROLL_BACK = "ROLL_BACK", _("Rolled back")

    coupon = models.ForeignKey(Coupon, models.PROTECT, related_name="redemptions", verbose_name=_("coupon"))
    # Without the database's own check: that would lock the activity's row, and checkout would wait on every drain. The
    # coupon's foreign key vouches for the activity.
    activity = models.ForeignKey(
        Activity,
        models.PROTECT,
        related_name="redemptions",
        verbose_name=_("activity"),
        db_constraint=False,
        db_index=False,
    )
    user_id = models.BigIntegerField(_("shopper"))
    entry = models.CharField(_("entry"), max_length=10, choices=Entry)
    turn = models.PositiveIntegerField(_("turn"), help_text=_("Which use of the coupon: 1, 2, …"))
    order_id = AsciiField(_("order"), max_length=ORDER_ID_MAX)
    order_amount = models.DecimalField(_("order amount"), max_digits=10, decimal_places=2)
    discount = models.DecimalField(_("discount"), max_digits=10, decimal_places=2)
    payable = models.DecimalField(_("payable"), max_digits=10, decimal_places=2)
    restored_to = models.CharField(_("restored to"), max_length=10, choices=CouponStatus, blank=True)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    made_by = models.CharField(_("made by"), max_length=150)
    created_at = models.DateTimeField(_("at"))

    objects = RedemptionQuerySet.as_manager()

    class Meta:
        verbose_name = _("redemption")
        verbose_name_plural = _("redemptions")
        ordering = ("-id",)
        base_manager_name = "objects"  # a saved entry that is saved again meets the same refusal
        indexes = (
            models.Index(fields=["order_id"], name="redemption_order"),
            models.Index(fields=["user_id", "id"], name="redemption_shopper"),
            models.Index(fields=["activity", "entry"], name="redemption_activity"),
            models.Index(fields=["entry", "id"], name="redemption_entry"),
        )
        constraints = (
            models.UniqueConstraint(fields=["coupon", "turn", "entry"], name="redemption_once_a_turn"),
            models.UniqueConstraint(fields=["coupon", "order_id", "entry"], name="redemption_once_an_order"),
            models.CheckConstraint(
                name="redemption_adds_up",
                # SQLite keeps decimals as binary fractions: a sum is only right to the cent.
                condition=Q(discount__gt=0, payable__gte=0, order_amount=Round(F("discount") + F("payable"), 2)),
            ),
            models.CheckConstraint(
                name="redemption_restored",
                condition=Q(entry="REDEEM", restored_to="") | Q(entry="ROLL_BACK") & ~Q(restored_to=""),
            ),
        )

    def __str__(self) -> str:
        return f"{self.order_id}: {self.coupon_id}/{self.turn} {self.entry}"
