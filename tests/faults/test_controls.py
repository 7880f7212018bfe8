"""Each protection removed, one at a time: the same scenario must then do the harm that it keeps out.

A control runs its scenario twice, with the protection (harm 0) and without it (harm above 0, printed).
One that sees no harm without the protection fails: its scenario would prove nothing.
"""

import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone
from services import PATIENCE_S, Valkey, wait_until

from activities.audit import Actor
from activities.models import Activity, Coupon
from seize import desk, queue, store
from seize.keys import queue_key, seize_keys, shard_of
from seize.outcomes import Won
from seize.queue import Entry
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import comparison, rebuild
from sync import drain as drain_module
from sync.comparison import ledger_compare
from sync.letters import letter_discard
from sync.models import DeadLetter
from sync.rebuild import activity_rebuild
from tests.factories import drain, offer
from tests.faults.conftest import System, slow_disk

pytestmark = pytest.mark.controls


def press(activity: Activity, user_id: int) -> bool:
    wanted = SeizeRequest(activity_id=activity.pk, seq=1)
    return isinstance(coupon_seize(wanted=wanted, user_id=user_id), Won)


def press_all(activity: Activity, users: range) -> int:
    return sum(press(activity, user_id) for user_id in users)


def compare() -> None:
    ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))


def control(record_property, removed: str, scenario: Callable[[bool], int]) -> None:
    """Run a scenario with and without a protection; ``scenario(True)`` = protected; it returns the harm."""
    assert scenario(True) == 0
    harm = scenario(False)
    record_property("harm", f"without {removed}: {harm}")
    assert harm > 0, f"without {removed} no harm was seen: the scenario proves nothing"


class constraint_dropped:  # noqa: N801 - reads as a statement
    """The database without one of a model's constraints, inside a ``with``."""

    def __init__(self, model, name: str) -> None:
        self.model = model
        self.constraint = next(c for c in model._meta.constraints if c.name == name)

    def __enter__(self) -> None:
        with connection.schema_editor() as editor:
            editor.remove_constraint(self.model, self.constraint)

    def __exit__(self, *_exception: object) -> None:
        Coupon.objects.all().delete()
        DeadLetter.objects.all().delete()
        Activity.objects.all().delete()
        with connection.schema_editor() as editor:
            editor.add_constraint(self.model, self.constraint)


def test_without_unique_a_batch_that_is_delivered_twice_makes_second_coupons(
    record_property, transactional_db, raw, monkeypatch
):
    def scenario(protected: bool) -> int:
        activity = offer(stock_total=20)
        press_all(activity, range(1, 6))
        entries = list(queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk))
        with monkeypatch.context() as patched:
            patched.setattr(drain_module, "_compared_with_rows", lambda claims, _activity: (claims, [], []))
            for _delivery in range(2):
                raw.hset(queue_key(shard_of(activity.pk)), mapping=dict(entries))
                drain(activity)
        return Coupon.objects.filter(activity=activity).count() - 5

    assert scenario(True) == 0
    with constraint_dropped(Coupon, "coupon_once"):
        harm = scenario(False)
        record_property("harm", f"without UNIQUE, second coupons: {harm}")
        assert harm == 5


def test_without_the_ledger_guard_there_are_more_coupons_than_stock(
    record_property, transactional_db, raw, monkeypatch
):
    def scenario(protected: bool) -> int:
        activity = offer(stock_total=5)
        for user_id in range(1, 9):  # eight claims on five coupons, however they came there
            raw.hset(
                queue_key(shard_of(activity.pk)),
                f"{activity.pk}:{user_id}:1",
                f"{1700000000000 + user_id}:{activity.uid}",
            )
        with monkeypatch.context() as patched:
            if not protected:
                patched.setattr(drain_module, "room_of", lambda _activity: 10**6)
            drain(activity)
        return Coupon.objects.filter(activity=activity).count() - 5

    assert scenario(True) == 0
    with constraint_dropped(Activity, "activity_issued_within_stock"):
        harm = scenario(False)
        record_property("harm", f"without the ledger's guard, coupons too many: {harm}")
        assert harm == 3


def lua_changed(monkeypatch, tmp_path: Path, name: str, old: str, new: str) -> None:
    """Let the product run a script with one expression replaced."""
    folder = tmp_path / f"lua-{name}"
    shutil.copytree(store.LUA_FOLDER, folder)
    text = (folder / f"{name}.lua").read_text()
    assert old in text
    (folder / f"{name}.lua").write_text(text.replace(old, new))
    monkeypatch.setattr(store, "LUA_FOLDER", folder)
    scripts_forget()


def scripts_forget() -> None:
    """Read the scripts' texts again."""
    store.script_source.cache_clear()
    store._script.cache_clear()


def files_turned_back(system: System, activity: Activity) -> int:
    """Sell 5 of 20 and keep those files; sell and drain 10 more; put the old files back. How many were promised."""
    promised = press_all(activity, range(1, 6))
    system.valkey.stop()
    old = system.folder / f"old-{activity.pk}"
    shutil.copytree(system.valkey.folder, old)
    system.valkey.start()
    system.raw.hset(seize_keys(activity.pk).rules, "gen", system.raw.info("replication")["master_replid"])
    promised += press_all(activity, range(6, 16))
    drain(activity)
    system.valkey.stop()
    shutil.rmtree(system.valkey.folder)
    shutil.copytree(old, system.valkey.folder)
    system.valkey.start()
    return promised


def test_without_fail_closed_old_files_are_sold_from(record_property, system, monkeypatch, tmp_path):
    def scenario(protected: bool) -> int:
        activity = offer(stock_total=20)
        promised = files_turned_back(system, activity)
        with monkeypatch.context() as patched:
            if not protected:
                lua_changed(patched, tmp_path, "seize", "rules_gen ~= gen", "false")
            promised += press_all(activity, range(100, 140))
            if protected:
                compare()
                promised += press_all(activity, range(200, 240))
        scripts_forget()
        return promised - 20

    control(record_property, "fail-closed, promised too many", scenario)


def test_rebuild_only_what_differs_sells_too_many(record_property, system, monkeypatch):
    """Epoch, uid and version of the old files are those of the row: nothing seems to differ."""

    def scenario(protected: bool) -> int:
        activity = offer(stock_total=20)
        promised = files_turned_back(system, activity)
        if protected:
            compare()
        else:
            there = desk.shard_inspect(shard=shard_of(activity.pk), activity_ids=[activity.pk])
            if comparison.verdict(activity, there._replace(gen=there.activities[activity.pk].gen)) == "nothing":
                system.raw.hset(seize_keys(activity.pk).rules, "gen", there.gen)
        return promised + press_all(activity, range(100, 140)) - 20

    control(record_property, "rebuilding always, promised too many", scenario)


def test_rebuild_from_rows_alone_sells_too_many(record_property, transactional_db, raw, monkeypatch):
    def scenario(protected: bool) -> int:
        activity = offer(stock_total=10)
        promised = press_all(activity, range(1, 8))
        drain(activity)
        promised += press_all(activity, range(8, 11))  # claims in the queue, not yet rows
        raw.delete(seize_keys(activity.pk).holders)
        with monkeypatch.context() as patched:
            if not protected:
                patched.setattr(rebuild.queue, "queue_entries", lambda **_arguments: iter(()))
            activity_rebuild(activity_id=activity.pk)
        return promised + press_all(activity, range(100, 120)) - 10

    control(record_property, "the queue in a rebuild, promised too many", scenario)


def test_drain_without_its_epoch_and_field_check_takes_coupons_from_those_who_won_them(
    record_property, transactional_db, raw, monkeypatch
):
    def scenario(protected: bool) -> int:
        DeadLetter.objects.all().delete()
        activity = offer(stock_total=10)
        press_all(activity, range(1, 6))
        scanned, go_on = threading.Event(), threading.Event()
        settle, check = drain_module._batch_settle, queue.drain_check

        def stalled(**arguments: object) -> object:
            scanned.set()
            assert go_on.wait(PATIENCE_S)
            return settle(**arguments)

        def work() -> None:
            try:
                drain(activity)
            finally:
                connection.close()

        def blind(*, activity_id: int, entries: list[Entry]) -> tuple[str, list[bool]]:
            return str(Activity.objects.get(pk=activity_id).epoch), [True] * len(entries)

        with monkeypatch.context() as patched:
            patched.setattr(drain_module, "_batch_settle", stalled)
            sleeper = threading.Thread(target=work)
            sleeper.start()
            assert scanned.wait(PATIENCE_S)
            raw.flushall()
            compare()
            assert press_all(activity, range(100, 120)) == 10
            if not protected:
                patched.setattr(queue, "drain_check", blind)
            go_on.set()
            sleeper.join(PATIENCE_S)
            patched.setattr(drain_module, "_batch_settle", settle)
            patched.setattr(queue, "drain_check", check)
        drain(activity)
        return DeadLetter.objects.filter(reason="NO_ROOM").count()

    control(record_property, "the drain's epoch-and-field check, winners without a coupon", scenario)


def test_adding_one_to_the_stock_on_discard_sells_too_many(record_property, transactional_db, raw):
    """The rebuild that comes between counts without the letter already."""

    def scenario(protected: bool) -> int:
        activity = offer(stock_total=10)
        promised = press_all(activity, range(1, 10))
        entry = Entry(f"{activity.pk}:50:1", f"1700000000000:{activity.uid}")
        DeadLetter.of(entry, reason="CONFLICT").save()
        activity_rebuild(activity_id=activity.pk)
        letter = DeadLetter.objects.get(activity_id=activity.pk)
        if protected:
            letter_discard(letter_id=letter.pk, reason="x", by=Actor("x"), now=timezone.now())
            activity_rebuild(activity_id=activity.pk)
        else:
            DeadLetter.objects.filter(pk=letter.pk).update(state="DISCARDED")
            activity_rebuild(activity_id=activity.pk)
            raw.hincrby(seize_keys(activity.pk).stock, str(activity.pk), 1)
        return promised + press_all(activity, range(100, 120)) - 10

    control(record_property, "the epoch on discard, promised too many", scenario)


def test_without_fsync_a_slow_disk_and_kill_9_lose_acknowledged_coupons(
    record_property, transactional_db, valkey, settings, tmp_path
):
    """everysec: while a slow fsync runs, writes are acknowledged that are not even in the file yet."""
    numbers = itertools.count()

    def answers() -> bool:
        try:
            return queue.queue_lengths([0]) is not None  # TIME is answered while the files are still read
        except (store.StoreUnavailable, store.OutcomeUnknown):
            return False

    def killed(name: str, *, slow_us: int, sold_us: int) -> int:
        library = slow_disk(tmp_path, slow_us=slow_us)
        server = Valkey(tmp_path / f"{name}-{next(numbers)}", binary=valkey.binary, fsync=name, preload=library)
        server.start()
        settings.REDIS_URL = server.url
        try:
            activity = offer(stock_total=100_000)
            began_us = store.time_us()
            acked: set[int] = set()
            while store.time_us() - began_us < sold_us:
                user_id = len(acked) + 1
                assert press(activity, user_id)
                acked.add(user_id)
            server.stop(kill=True)
            server.start()
            wait_until(answers, what="the files to be read")
            return len(acked - desk.holders_read(activity_id=activity.pk).keys())
        finally:
            server.stop(kill=True)

    def scenario(protected: bool) -> int:
        if protected:
            return killed("always", slow_us=2_000, sold_us=400_000)
        # For two seconds at most writes wait for the fsync; on a slow machine the kill may come later than that.
        kills = (killed("everysec", slow_us=1_500_000, sold_us=2_500_000) for _try in range(20))
        return next(filter(None, kills), 0)

    control(record_property, "fsync before the answer, acknowledged and lost", scenario)
