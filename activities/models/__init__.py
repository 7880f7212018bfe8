"""The ledger: what is on offer, what was given out, what was used, and which services may use it."""

from activities.models.access import ACCESS_FIELDS, LISTED_MAX, Audience, Challenge, Listed
from activities.models.activity import STOCK_MAX, Activity, uid_make
from activities.models.api_key import ApiKey
from activities.models.audit import AuditEvent
from activities.models.coupon import Coupon
from activities.models.redemption import Redemption
from activities.models.terms import DiscountTerms

__all__ = [
    "ACCESS_FIELDS", "LISTED_MAX", "STOCK_MAX", "Activity", "ApiKey", "Audience", "AuditEvent", "Challenge", "Coupon",
    "DiscountTerms", "Listed", "Redemption", "uid_make",
]  # fmt: skip
