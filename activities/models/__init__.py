"""The ledger: what is on offer, what was given out, what was used, and which services may use it."""

from activities.models.activity import STOCK_MAX, Activity, uid_make
from activities.models.api_key import ApiKey
from activities.models.audit import AuditEvent
from activities.models.coupon import Coupon
from activities.models.redemption import Redemption
from activities.models.terms import DiscountTerms

__all__ = ["STOCK_MAX", "Activity", "ApiKey", "AuditEvent", "Coupon", "DiscountTerms", "Redemption", "uid_make"]
