"""The coupon that a claim becomes: for the drain, for a replay, and for a wallet that shows it before."""

from collections.abc import Sequence
from datetime import datetime

from django.db import connection

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


OF_ONE_CLAIM = ("user_id", "seq", "seized_at", "expires_at")


def coupons_insert(*, claims: Sequence[Claim], activity: Activity) -> None:
    """Insert the coupons of one activity's claims: the rows that saving each :func:`coupon_of` would make.

    A model object a row cost more than the database's own work. Only ``OF_ONE_CLAIM`` differs from row to row; every
    other column is taken from the first coupon, so that a column that is added later is copied without a word here.

    :raises django.db.IntegrityError: one of them exists, or a constraint refuses it; none is written.
    :raises django.db.DataError: a value does not fit its column; none is written.
    """
    if not claims:
        return
    first = coupon_of(claims[0], activity)
    shared = {field.attname: field for field in Coupon._meta.concrete_fields if not field.primary_key}
    own = [shared.pop(name) for name in OF_ONE_CLAIM]
    frozen = tuple(field.get_db_prep_save(getattr(first, name), connection) for name, field in shared.items())
    # Winners of one call of the script share their millisecond.
    moments = {claim.seized_ms: claim.seized_at for claim in claims}
    times = {ms: (at, activity.coupon_expires_at(seized_at=at)) for ms, at in moments.items()}
    columns = [connection.ops.quote_name(str(field.column)) for field in (*shared.values(), *own)]
    insert = f"INSERT INTO {connection.ops.quote_name(Coupon._meta.db_table)} ({', '.join(columns)}) VALUES "  # noqa: S608
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            # This driver writes each value into the statement's text, one call of Python a value. Done here, once for
            # what rows share; what differs are numbers and times, in which nothing needs to be quoted.
            same = cursor.mogrify(", ".join(["%s"] * len(frozen)), frozen)
            zone = connection.timezone

            def text(moment: datetime) -> str:
                return moment.astimezone(zone).isoformat(" ", "microseconds")[:26]

            texts = {ms: f"'{text(at)}', '{text(expires_at)}'" for ms, (at, expires_at) in times.items()}
            rows = [f"({same}, {claim.user_id:d}, {claim.seq:d}, {texts[claim.seized_ms]})" for claim in claims]
            cursor.execute(insert + ", ".join(rows))
        else:
            adapt = connection.ops.adapt_datetimefield_value
            adapted = {ms: tuple(map(adapt, pair)) for ms, pair in times.items()}
            every = [(*frozen, claim.user_id, claim.seq, *adapted[claim.seized_ms]) for claim in claims]
            cursor.executemany(f"{insert}({', '.join(['%s'] * len(columns))})", every)
