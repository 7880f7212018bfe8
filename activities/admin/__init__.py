"""Back office of the activities app."""

from activities.admin.activity import ActivityAdmin
from activities.admin.api_key import ApiKeyAdmin
from activities.admin.audit import AuditEventAdmin
from activities.admin.ledger import CouponAdmin, RedemptionAdmin

__all__ = ["ActivityAdmin", "ApiKeyAdmin", "AuditEventAdmin", "CouponAdmin", "RedemptionAdmin"]
