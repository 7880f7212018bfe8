"""The coupon that a claim becomes: for the drain, for a replay, and for a wallet that shows it before."""

from activities.models import Activity, Coupon
from activities.statuses import ActivityStatus, CouponStatus
from seize.claims import Claim


def coupon_of(claim: Claim, activity: Activity) -> Coupon:
    """An unsaved coupon: today's terms frozen, valid from the moment of seizing.

    A claim that was waiting when its activity was voided becomes a void coupon.
    """
    voided = activity.status == ActivityStatus.VOIDED
    return Coupon(
        activity=activity,
        user_id=claim.user_id,
        seq=claim.seq,
        status=CouponStatus.VOIDED if voided else CouponStatus.UNUSED,
        seized_at=claim.seized_at,
        expires_at=activity.coupon_expires_at(seized_at=claim.seized_at),
        **{term: getattr(activity, term) for term in Coupon.TERMS},
    )
