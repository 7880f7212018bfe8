"""What became of a shopper's claims on one activity."""

from activities.admission import unix_ms
from activities.models import Activity, Coupon
from seize.claims import claims_lookup
from seize.responses import rfc3339
from seize.services import server_time
from sync.models import DeadLetter


def claim_states(*, activity_id: int, user_id: int) -> dict[str, object] | None:
    """Per seq 1 to the limit: none, pending, issued (with the coupon's id) or failed; None = no such activity.

    Read in the direction in which claims move: queue, dead letters, rows.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    activity = Activity.objects.published().filter(pk=activity_id).first()
    if activity is None:
        return None
    seqs = range(1, activity.per_user_limit + 1)
    waiting = claims_lookup([(activity_id, user_id, seq) for seq in seqs])
    pending = {claim.seq for claim in waiting if claim.uid == activity.uid}
    letters = DeadLetter.objects.filter(activity_id=activity_id, user_id=user_id, uid=activity.uid)
    failed = set(letters.exclude(state=DeadLetter.State.REPLAYED).values_list("seq", flat=True))
    rows = Coupon.objects.filter(activity=activity, user_id=user_id)
    issued = dict(rows.values_list("seq", "id"))

    def state_of(seq: int) -> str:
        if seq in issued:
            return "issued"
        if seq in failed:
            return "failed"
        return "pending" if seq in pending else "none"

    return {
        "activity_id": str(activity_id),
        "server_time": rfc3339(unix_ms(server_time())),
        "claims": [
            {"seq": seq, "state": state_of(seq), "coupon_id": str(issued[seq]) if seq in issued else None}
            for seq in seqs
        ],
    }
