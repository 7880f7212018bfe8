"""The ledger to look up: coupons and what became of them. Nobody edits it; a redemption can be rolled back."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from activities import checkout
from activities.actors import actor_of
from activities.admission import desk_now
from activities.confirmation import ReasonForm, confirmation_button, confirmation_view
from activities.models import Coupon, Redemption
from activities.querysets import CouponQuerySet
from activities.readonly import LedgerAdmin
from activities.statuses import CouponStatus
from seize.problems import title_now

COUPON_COLOURS = {
    CouponStatus.UNUSED: "success",
    CouponStatus.REDEEMED: "info",
    CouponStatus.VOIDED: "danger",
}
ROLL_BACK = _("Roll back")


class EffectiveCouponFilter(admin.SimpleListFilter):
    """Filter coupons by the status that holds now."""

    title = _("status")
    parameter_name = "effective"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [(status.value, str(status.label)) for status in CouponStatus]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Coupon]) -> QuerySet[Coupon]:
        value = self.value()
        if value not in CouponStatus.values:
            return queryset
        assert isinstance(queryset, CouponQuerySet)
        return queryset.effective_page(value, now=timezone.now())


class RollBackRefused(Exception):
    """The order cannot give the coupon back; ``str()`` is the reason."""


class RollBackForm(ReasonForm):
    """Why staff give a coupon back, and for which order the page was opened: another may have the coupon by now."""

    order_id = forms.CharField(widget=forms.HiddenInput)


@admin.register(Coupon)
class CouponAdmin(LedgerAdmin):
    """Coupons, and a button for the one that an order should give back."""

    list_display = ("id", "activity", "show_shopper", "seq", "show_status", "seized_at", "expires_at")
    list_filter = (EffectiveCouponFilter,)
    found_by = ("user_id", "id")
    actions_detail = ("roll_back",)
    fieldsets = (
        (None, {"fields": ("activity", "show_shopper", "seq", "effective", "seized_at", "expires_at")}),
        (_("Use"), {"fields": ("order_id", "redeemed_at", "uses")}),
        (_("Discount"), {"fields": Coupon.TERMS}),
    )
    readonly_fields = ("show_shopper", "effective")

    @display(description=_("status"))
    def effective(self, obj: Coupon) -> str:
        return str(obj.effective_status(now=timezone.now()).label)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Coupon]:
        coupons: QuerySet[Coupon] = super().get_queryset(request)
        return coupons.prefetch_related("activity")

    @display(description=_("status"), label=COUPON_COLOURS)
    def show_status(self, obj: Coupon) -> tuple[str, str]:
        effective = obj.effective_status(now=timezone.now())
        return effective, str(effective.label)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        coupon = self.get_object(request, object_id)
        redeemed = coupon is not None and coupon.status == CouponStatus.REDEEMED
        if not redeemed or not request.user.has_perm("activities.roll_back_coupon"):
            return []
        buttons: list[Any] = super().get_actions_detail(request, object_id)
        return buttons

    def change_view_of(self, request: HttpRequest, object_id: str, change: str) -> HttpResponse:
        """Ask for the reason, give the coupon back for its order, and say what came of it."""
        if not request.user.has_perm("activities.roll_back_coupon"):
            raise PermissionDenied
        coupon = self.get_object(request, object_id)
        if coupon is None:
            raise Http404

        def call(data: dict[str, Any]) -> None:
            written = checkout.coupon_roll_back(
                coupon_id=coupon.pk,
                order_id=data["order_id"],
                reason=data["reason"],
                by=actor_of(request),
                now=desk_now(),
            )
            if isinstance(written, checkout.Refused):
                raise RollBackRefused(title_now(written.why.name))

        return confirmation_view(
            self,
            request,
            subject=coupon,
            label=ROLL_BACK,
            question=_("Give this coupon back to the shopper? The order that redeemed it cannot redeem it again."),
            form=RollBackForm(
                request.POST if request.method == "POST" else None, initial={"order_id": coupon.order_id}
            ),
            call=call,
            refusal=RollBackRefused,
        )

    roll_back = confirmation_button("roll_back", ROLL_BACK)


@admin.register(Redemption)
class RedemptionAdmin(LedgerAdmin):
    """Every use and every roll-back, in the order in which they were entered."""

    list_display = ("id", "entry", "coupon_id", "show_shopper", "order_id", "order_amount", "discount", "payable",
                    "made_by", "created_at")  # fmt: skip
    fields = ("coupon", "activity", "show_shopper", "entry", "turn", "order_id", "order_amount", "discount", "payable",
              "restored_to", "reason", "made_by", "created_at")  # fmt: skip
    readonly_fields = ("show_shopper",)
    list_filter = ("entry",)
    found_by = ("order_id", "user_id", "coupon")
