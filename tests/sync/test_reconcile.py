"""Reconciliation: silent on healthy sales, by name on real differences, and careful with repairs."""

import threading

import orjson
import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from services import PATIENCE_S, wait_until

from activities.models import Activity, Coupon
from seize import desk
from seize.keys import seize_keys
from seize.outcomes import Refusal, Won
from seize.queue import Entry
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import reconcile
from sync.models import DeadLetter, Reconciliation
from sync.rebuild import activity_rebuild
from sync.reconcile import activities_reconcile, activity_reconcile
from tests.factories import drain, offer

pytestmark = pytest.mark.django_db(transaction=True)


def press(activity: Activity, user_id: int, seq: int = 0):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


def check(activity: Activity, *, names: bool = False) -> Reconciliation:
    return activity_reconcile(activity_id=activity.pk, now=timezone.now(), names=names)


def test_claims_in_queue_rows_and_letters_agree_with_what_is_sold():
    activity = offer(stock_total=10, per_user_limit=2)
    for user_id in (1, 2, 3):
        press(activity, user_id)
    drain(activity)
    press(activity, 3)
    press(activity, 4)
    result = check(activity, names=True)
    assert (result.state, result.claims, result.sold_first, result.sold_last) == ("AGREES", 5, 5, 5)
    assert result.differences == {"not_held": [], "held_only": []}
    assert Reconciliation.objects.get().checked_at is not None


def test_waiting_letter_counts_and_a_discarded_one_is_only_held():
    activity = offer(stock_total=10)
    for user_id, state in ((1, "WAITING"), (2, "DISCARDED")):
        letter = DeadLetter.of(Entry(f"{activity.pk}:{user_id}:1", f"1700000000000:{activity.uid}"), reason="NO_ROOM")
        letter.state = state
        letter.save()
    activity_rebuild(activity_id=activity.pk)
    result = check(activity, names=True)
    assert (result.state, result.claims, result.sold_last) == ("AGREES", 1, 1)
    assert result.differences == {"not_held": [], "held_only": []}


def test_hundred_runs_during_a_sale_with_drains_never_report_a_difference():
    activity = offer(stock_total=1_000_000)
    over = threading.Event()

    def sell(first: int) -> None:
        user_id = first
        try:
            while not over.is_set():
                press(activity, user_id)
                user_id += 1
        finally:
            connection.close()

    def keep_draining() -> None:
        try:
            while not over.is_set():
                drain(activity, batch_size=50)
        finally:
            connection.close()

    threads = [threading.Thread(target=sell, args=(first,)) for first in (1, 10_000_000)]
    threads.append(threading.Thread(target=keep_draining))
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: Coupon.objects.count() > 100, what="the sale and its drains to be under way")
        states = [check(activity, names=number % 10 == 0).state for number in range(100)]
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert states == ["AGREES"] * 100
    assert Coupon.objects.count() > 100


def test_lost_holder_and_lost_row_are_both_named(raw, capsys):
    activity = offer(stock_total=10)
    for user_id in (1, 2, 3):
        press(activity, user_id)
    drain(activity)
    raw.hdel(seize_keys(activity.pk).holders, "1")
    Coupon.objects.filter(user_id=2).delete()
    with pytest.raises(SystemExit):
        call_command("reconcile", activity=activity.pk, json=True)
    told = orjson.loads(capsys.readouterr().out)
    assert (told["state"], told["not_held"], told["held_only"]) == ("differs", [[1, 1]], [[2, 1]])


def test_names_are_asked_only_when_counts_differ_twice_running(raw):
    activity = offer(stock_total=10)
    press(activity, 1)
    raw.hdel(seize_keys(activity.pk).holders, "1")
    first = check(activity)
    assert (first.state, first.differing_runs, first.differences) == ("DIFFERS", 1, {})
    second = check(activity)
    assert (second.differing_runs, second.differences["not_held"]) == (2, [[1, 1]])


def test_holder_that_redis_lost_is_repaired_by_a_rebuild(raw):
    activity = offer(stock_total=10)
    press(activity, 1)
    raw.hdel(seize_keys(activity.pk).holders, "1")
    check(activity)
    check(activity)
    assert press(activity, 1, 1).replay is True
    assert check(activity).state == "AGREES"


def test_stock_that_is_too_high_is_repaired_before_it_sells_too_much(raw):
    activity = offer(stock_total=2)
    press(activity, 1)
    press(activity, 2)
    raw.hset(seize_keys(activity.pk).stock, str(activity.pk), "5")
    check(activity)
    check(activity)
    assert desk.stock_left([activity.pk]) == {activity.pk: 0}


def test_what_only_redis_holds_is_reported_and_never_repaired(raw):
    activity = offer(stock_total=10)
    press(activity, 1)
    drain(activity)
    Coupon.objects.all().delete()
    for _ in range(3):
        result = check(activity)
    assert result.differences == {"not_held": [], "held_only": [[1, 1]]}
    activity.refresh_from_db()
    assert activity.epoch == 1
    assert press(activity, 1, 1).replay is True


def test_desk_that_sells_too_much_and_holds_what_no_ledger_has_is_paused_for_staff_to_decide(raw):
    activity = offer(stock_total=2)
    press(activity, 1)
    press(activity, 2)
    drain(activity)
    Coupon.objects.filter(user_id=2).delete()
    raw.hset(seize_keys(activity.pk).stock, str(activity.pk), "5")
    raw.hdel(seize_keys(activity.pk).holders, "1")
    for _ in range(3):
        result = check(activity)
    assert result.differences == {"not_held": [[1, 1]], "held_only": [[2, 1]]}
    assert press(activity, 3).refusal is Refusal.PAUSED
    activity.refresh_from_db()
    assert (activity.status, activity.epoch) == ("PAUSED", 1)


def test_rebuild_in_between_skips_the_run(monkeypatch):
    activity = offer()
    real = reconcile._claims_read

    def and_a_rebuild(activity_id: int, *, with_names: bool):
        activity_rebuild(activity_id=activity_id)
        return real(activity_id, with_names=with_names)

    monkeypatch.setattr(reconcile, "_claims_read", and_a_rebuild)
    assert check(activity).state == "SKIPPED"


def test_all_activities_are_reconciled_and_a_second_run_replaces_the_first():
    for _ in range(3):
        offer()
    assert activities_reconcile(now=timezone.now()) == {"AGREES": 3}
    assert activities_reconcile(now=timezone.now()) == {"AGREES": 3}
    assert Reconciliation.objects.count() == 3


def test_command_tells_a_person_in_words(capsys):
    activity = offer(stock_total=10)
    assert isinstance(press(activity, 1), Won)
    call_command("reconcile")
    assert capsys.readouterr().out == f"activity {activity.pk}: agrees, 1 claims, 1 to 1 sold\n"
