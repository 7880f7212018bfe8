"""The back office's look: its name, and what stands in the sidebar."""

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


def _item(title: Promise, icon: str, route: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(route)}


UNFOLD: dict[str, Any] = {
    "LOGIN": {"form": "couponsite.forms.StaffLogInForm"},
    "SITE_TITLE": _("Coupon seizing"),
    "SITE_HEADER": _("Coupon seizing"),
    "SITE_SUBHEADER": _("Back office"),
    "SITE_SYMBOL": "confirmation_number",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda _request: static("favicon.svg")}],
    "SHOW_HISTORY": True,
    "DASHBOARD_CALLBACK": "couponsite.back_office.dashboard_callback",
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {
        "navigation": [
            {
                "title": _("Sale"),
                "items": [
                    _item(_("Activities"), "campaign", "admin:activities_activity_changelist"),
                    _item(_("Coupons"), "confirmation_number", "admin:activities_coupon_changelist"),
                    _item(_("Redemptions"), "receipt_long", "admin:activities_redemption_changelist"),
                ],
            },
            {
                "title": _("Sync"),
                "items": [
                    _item(_("Dead letters"), "report", "admin:sync_deadletter_changelist"),
                    _item(_("Reconciliations"), "balance", "admin:sync_reconciliation_changelist"),
                    _item(_("Health"), "monitor_heart", "sync-health"),
                    _item(_("Schedule"), "schedule", "admin:django_celery_beat_periodictask_changelist"),
                ],
            },
            {
                "title": _("People and keys"),
                "items": [
                    _item(_("Users"), "group", "admin:auth_user_changelist"),
                    _item(_("Groups"), "groups", "admin:auth_group_changelist"),
                    _item(_("API keys"), "key", "admin:activities_apikey_changelist"),
                    _item(_("Audit"), "history", "admin:activities_auditevent_changelist"),
                ],
            },
        ],
    },
}
