"""Deciding about dead letters: replay turns one into a coupon after all, discard gives its coupon back.

A letter counts as claimed until it is discarded. Nothing here adds to the stock: a discard raises the
activity's epoch in the same transaction, and the rebuild that follows counts without it.
"""

from datetime import datetime

from django.db import DataError, IntegrityError, transaction
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from activities.audit import Action, Actor, event_record
from activities.contention import contention_retried
from activities.coupons import coupon_of
from activities.models import Activity, Coupon
from seize.claims import Claim, claim_parse
from seize.queue import Entry
from sync.dispatch import rebuild_send
from sync.models import DeadLetter


class LetterRefused(Exception):
    """The decision is not possible now; ``str()`` is the reason for the staff. Nothing was changed."""

    def __init__(self, reason: str | Promise) -> None:
        super().__init__(str(reason))


def _letter_lock(letter_id: int, *, reason: str) -> tuple[DeadLetter, Activity | None]:
    """Lock the activity's row first, as the drain does, then the letter; check that it still waits."""
    found = DeadLetter.objects.filter(pk=letter_id).first()
    if found is None:
        raise LetterRefused(_("There is no such dead letter."))
    if not reason.strip():
        raise LetterRefused(_("Give a reason."))
    activity = Activity.objects.select_for_update().filter(pk=found.activity_id or 0).first()
    letter = DeadLetter.objects.select_for_update().get(pk=letter_id)
    if letter.state != DeadLetter.State.WAITING:
        raise LetterRefused(_("It was decided already: %(state)s.") % {"state": letter.get_state_display()})
    return letter, activity


def _letter_decide(letter: DeadLetter, *, state: str, reason: str, by: Actor, now: datetime) -> DeadLetter:
    letter.state, letter.decision_reason, letter.decided_by = state, reason.strip()[:200], by.name[:150]
    letter.decided_at = now
    letter.save(update_fields=["state", "decision_reason", "decided_by", "decided_at"])
    replayed = state == DeadLetter.State.REPLAYED
    event_record(
        action=Action.LETTER_REPLAY if replayed else Action.LETTER_DISCARD,
        subject=letter,
        by=by,
        now=now,
        before={"state": DeadLetter.State.WAITING},
        after={"state": state, "activity_id": letter.activity_id},
        reason=letter.decision_reason,
    )
    return letter


@contention_retried
@transaction.atomic
def letter_replay(*, letter_id: int, reason: str, by: Actor, now: datetime) -> DeadLetter:
    """Turn a letter into the coupon that it claims, under the activity's row lock.

    :raises LetterRefused: decided already, no claim, another activity, no room, or a conflict.
    """
    letter, activity = _letter_lock(letter_id, reason=reason)
    claim = _claim_of(letter)
    if claim is None or activity is None or activity.uid != claim.uid:
        raise LetterRefused(_("It belongs to no activity that is there: it can only be discarded."))
    row = Coupon.objects.filter(activity=activity, user_id=claim.user_id, seq=claim.seq).first()
    if row is not None and row.seized_at != claim.seized_at:
        raise LetterRefused(_("The shopper has this coupon from another time: it can only be discarded."))
    if row is None:
        if activity.issued >= activity.stock_total:
            raise LetterRefused(_("There is no coupon left in the ledger: add stock first."))
        try:
            with transaction.atomic():
                coupon_of(claim, activity).save(force_insert=True)
        except (DataError, IntegrityError) as error:
            raise LetterRefused(_("The database refuses this coupon: it can only be discarded.")) from error
        activity.issued += 1
        activity.save(update_fields=["issued"])
    return _letter_decide(letter, state=DeadLetter.State.REPLAYED, reason=reason, by=by, now=now)


@contention_retried
@transaction.atomic
def letter_discard(*, letter_id: int, reason: str, by: Actor, now: datetime) -> DeadLetter:
    """Give a claim up. The epoch rises with it, so that a rebuild frees its coupon; its seq is never reused.

    :raises LetterRefused: decided already.
    """
    letter, activity = _letter_lock(letter_id, reason=reason)
    if activity is not None and activity.uid == letter.uid:
        activity.epoch += 1
        activity.save(update_fields=["epoch"])
        transaction.on_commit(lambda: rebuild_send(activity.pk), robust=True)
    return _letter_decide(letter, state=DeadLetter.State.DISCARDED, reason=reason, by=by, now=now)


def _claim_of(letter: DeadLetter) -> Claim | None:
    return claim_parse(Entry(letter.field, letter.value)) if letter.seq is not None else None
