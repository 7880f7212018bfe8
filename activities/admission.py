"""What activities tell the admission desk in Redis: close before a commit, admit after it, and the public list."""

import logging
from datetime import datetime

import orjson
from celery import current_app
from django.contrib.auth import get_user_model
from django.utils import timezone
from kombu.exceptions import OperationalError

from activities.checklist import Redis
from activities.models import Activity, Audience, Challenge, DiscountTerms, Listed
from activities.statuses import UNPUBLISHED, ActivityStatus
from seize import desk, store
from seize.keys import shard_of
from seize.services import server_time

log = logging.getLogger(__name__)

STORE_FAULTS = (store.StoreUnavailable, store.OutcomeUnknown)


def desk_now() -> datetime:
    """Redis' clock, which decides about sales; this host's while Redis cannot be asked."""
    try:
        return server_time()
    except STORE_FAULTS:
        return timezone.now()


def unix_ms(moment: datetime) -> int:
    """A datetime as Unix ms, rounded down."""
    return int(moment.timestamp() * 1_000_000) // 1000


def rules_of(activity: Activity) -> desk.Rules:
    """An activity's row as the rules that Redis keeps."""
    states = {ActivityStatus.PAUSED: "paused", ActivityStatus.VOIDED: "voided"}
    return desk.Rules(
        activity_id=activity.pk,
        uid=activity.uid,
        epoch=activity.epoch,
        version=activity.version,
        state=states.get(ActivityStatus(activity.status), "open"),
        starts_ms=unix_ms(activity.starts_at),
        ends_ms=unix_ms(activity.ends_at),
        per_user=activity.per_user_limit,
        total=activity.stock_total,
        settled=activity.settled_at is not None,
        access=access_of(activity),
    )


def access_of(activity: Activity) -> desk.Access:
    """Who is let in and how fast, as Redis keeps it; what limits nobody is left out."""
    is_challenged = activity.challenge != Challenge.OFF
    is_for_staff = activity.audience == Audience.STAFF
    return desk.Access(
        asks=activity.asks_max,
        window_ms=None if activity.asks_max is None else activity.asks_window_s * 1000,
        rate=activity.rate_max,
        ramp_ms=activity.ramp_s * 1000 or None,
        challenge=activity.challenge.lower() if is_challenged else None,
        effort=activity.challenge_effort if is_challenged else None,
        pressure=activity.pressure_min if activity.challenge == Challenge.PRESSURE else None,
        percent=None if is_for_staff or activity.gray_percent == 100 else activity.gray_percent,
        staff=is_for_staff,
        lists=activity.listed_version if is_listed(activity) else None,
    )


def activity_preheat(activity: Activity) -> str:
    """Bring Redis up to a row, and the lists that it speaks of; what ``preheat.lua`` said, but never 'lists'."""
    rules = rules_of(activity)
    answer = desk.preheat(rules)
    if answer == "lists":
        listed_publish(activity)
        answer = desk.preheat(rules)
    return answer


def is_listed(activity: Activity) -> bool:
    """Whether anybody is let in to the activity, or kept out, by name."""
    return activity.listed_version > 0 and Listed.objects.filter(activity=activity).exists()


def listed_publish(activity: Activity, *, force: bool = False) -> None:
    """Write to Redis who is let in to the activity and who is kept out by name, if it has such lists.

    :param force: whatever lies there, as when an activity is made anew.
    :raises seize.desk.ListBroken: Redis was emptied meanwhile.
    """
    if is_listed(activity):
        rows = Listed.objects.filter(activity=activity).values_list("user_id", "verdict")
        listed = [(user_id, verdict.lower()) for user_id, verdict in rows.iterator(chunk_size=10_000)]
        desk.listed_write(
            activity_id=activity.pk, uid=activity.uid, version=activity.listed_version, listed=listed, force=force
        )


def staff_publish() -> None:
    """Write to Redis who belongs to the back office."""
    desk.staff_write(get_user_model().objects.filter(is_staff=True, is_active=True).values_list("pk", flat=True))


def staff_tell() -> None:
    """Like :func:`staff_publish`; a Redis that is away hears it from the comparison later."""
    try:
        staff_publish()
    except STORE_FAULTS as fault:
        log.warning("who belongs to the staff is not yet in Redis: %s", fault)


def activity_close(*, activity: Activity, state: str) -> None:
    """Stop selling before the commit. A Redis that cannot be reached is stopped by the comparison later."""
    try:
        desk.close(activity_id=activity.pk, uid=activity.uid, state=state)
    except STORE_FAULTS as fault:
        log.warning("activity %s could not be closed before its commit: %s", activity.pk, fault)


def shard_unload(*, activity: Activity) -> None:
    """From now on an unknown id of this shard is not called unknown, until everything is loaded again."""
    try:
        desk.shard_unload(shard=shard_of(activity.pk))
    except STORE_FAULTS as fault:
        log.warning("activity %s may be called unknown until it is loaded: %s", activity.pk, fault)


def activity_admit(*, activity_id: int) -> str:
    """Bring Redis up to a committed row, and the public list with it.

    :return: what ``preheat.lua`` said, or 'unavailable'. Nothing depends on it: the dispatcher
        compares every second and mends what did not arrive here.
    """
    try:
        answer = activity_preheat(Activity.objects.get(pk=activity_id))
        if answer == "rebuild":
            _rebuild_hint(activity_id)
        list_publish()
    except STORE_FAULTS as fault:
        log.warning("activity %s is committed but not yet in Redis: %s", activity_id, fault)
        return "unavailable"
    return answer


def _rebuild_hint(activity_id: int) -> None:
    try:
        # By name: the task lives above this app, and the message is only a hint.
        current_app.send_task(
            "sync.rebuild_activity", kwargs={"activity_id": activity_id}, expires=5, retry=False, ignore_result=True
        )
    except OperationalError as fault:
        log.warning("no hint for activity %s, the dispatcher will see it: %s", activity_id, fault)


def redis_state(activity: Activity) -> Redis:
    """Whether Redis would sell this activity's coupons, were it on offer; a Redis that is away is an answer, too."""
    try:
        found = desk.shard_inspect(shard=shard_of(activity.pk), activity_ids=[activity.pk])
    except STORE_FAULTS:
        return Redis.AWAY
    held = found.activities[activity.pk]
    is_held = held.uid == activity.uid and held.gen == found.gen and not held.fence
    ready = found.loaded if activity.status in UNPUBLISHED else is_held
    return Redis.READY if ready else Redis.LOADING


def list_publish() -> bool:
    """Write ``ACTIVITY:LIST`` from the ledger; False when a later reader has already written.

    Its elements hold times as Unix ms, money as text, and the stored status; what is shown is
    computed from them when it is read.
    """
    stamp_us = store.time_us()
    now = datetime.fromtimestamp(stamp_us / 1_000_000, tz=timezone.get_default_timezone())
    rows = Activity.objects.listed(now=now).order_by("starts_at", "id")
    text = orjson.dumps([list_element(activity) for activity in rows]).decode()
    return desk.list_write(stamp_us=stamp_us, text=text)


def list_element(activity: Activity) -> dict[str, object]:
    """One activity as ``ACTIVITY:LIST`` holds it."""
    return {
        "id": str(activity.pk),
        "name": activity.name,
        "rules_text": activity.rules_text,
        **terms_body(activity),
        "status": activity.status,
        "starts_ms": unix_ms(activity.starts_at),
        "ends_ms": unix_ms(activity.ends_at),
        "valid_days": activity.valid_days,
        "valid_until_ms": None if activity.valid_until is None else unix_ms(activity.valid_until),
        "stock_total": activity.stock_total,
        "per_user_limit": activity.per_user_limit,
        "challenge": activity.challenge.lower(),
        "release": release_element(activity),
    }


def release_element(activity: Activity) -> dict[str, object] | None:
    """An activity's release as the list in Redis holds it; None where it is open to everybody."""
    is_for_staff = activity.audience == Audience.STAFF
    has_lists = is_listed(activity)
    if activity.gray_percent == 100 and not is_for_staff and not has_lists:
        return None
    return {
        "uid": activity.uid,
        "percent": activity.gray_percent,
        "is_for_staff": is_for_staff,
        "has_lists": has_lists,
        "is_announced": activity.coming_soon,
    }


def terms_body(terms: DiscountTerms) -> dict[str, object]:
    """What a coupon is worth, money as text with two decimals."""

    def money(value: object) -> str | None:
        return None if value is None else f"{value:.2f}"

    return {
        "kind": terms.kind,
        "min_spend": money(terms.min_spend),
        "amount_off": money(terms.amount_off),
        "pay_percent": terms.pay_percent,
        "max_off": money(terms.max_off),
        "min_payable": money(terms.min_payable),
    }
