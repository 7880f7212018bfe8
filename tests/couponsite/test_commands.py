"""Commands: what they do, that repeating is harmless, and one line with exit code 2 for wrong use."""

import io
import os
import subprocess
import sys
from datetime import timedelta

import orjson
import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from services import PATIENCE_S

from activities.management.commands import seed_demo
from activities.models import Activity, AuditEvent
from seize import desk
from seize.keys import shard_of
from seize.management.base import UsageError
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from seize.tokens import access_token_verify
from tests.factories import offer


@pytest.mark.parametrize(
    "arguments",
    [
        ["shopper_tokens"],
        ["shopper_tokens", "--count", "0"],
        ["shopper_tokens", "--count", "many"],
        ["shopper_tokens", "--count", "1", "--start", "0"],
        ["shopper_tokens", "--count", "1", "--hours", "9999"],
        ["drain", "--shard", "10"],
        ["drain", "--shards", "1"],
        ["preheat", "now"],
        ["seed_demo", "now"],
        ["access"],
        ["access", "one"],
        ["access", "1", "--set"],
        ["access", "1", "--set", "gray_percent"],
        ["access", "1", "--set", "stock_total=5"],
        ["access", "1", "--set", "gray_percent=101"],
        ["access", "1", "--set", "gray_percent="],
        ["access", "1", "--set", "coming_soon=perhaps"],
        ["access", "1", "--set", "gray_percent=1", "gray_percent=2"],
        ["access", "1", "--allow", "nowhere.csv"],
        ["access", "1", "--deny", "README.md"],
        ["drain"],  # and no Redis
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, tmp_path):
    env = {"PATH": os.environ["PATH"], "ENV_FILE": os.devnull, "VAR_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stdout == ""


def test_shopper_tokens_are_one_valid_token_a_line(capsys):
    call_command("shopper_tokens", count=3, start=1001)
    tokens = capsys.readouterr().out.split()
    assert [access_token_verify(token) for token in tokens] == [1001, 1002, 1003]


def test_development_commands_refuse_production(settings):
    settings.DEVELOPMENT = False
    for command, options in (("shopper_tokens", {"count": 1}), ("seed_demo", {})):
        with pytest.raises(UsageError):
            call_command(command, **options)


@pytest.mark.django_db(transaction=True)
class TestOnRealStores:
    def test_demo_is_seeded_once_with_all_that_a_newcomer_should_see(self, api, monkeypatch):
        monkeypatch.setattr(seed_demo, "SOON", timedelta(hours=1))
        call_command("seed_demo", stdout=io.StringIO())
        call_command("preheat", stdout=io.StringIO())
        results = api.get("/market/consumer/activity/list").json()["results"]
        assert [(r["status"], r["per_user_limit"], r["kind"]) for r in results] == [
            ("ongoing", 1, "FIXED"),
            ("ongoing", 3, "PERCENT"),
            ("ended", 1, "FIXED"),
            ("paused", 1, "PERCENT"),
            ("upcoming", 1, "FIXED"),
            ("upcoming", 1, "FIXED"),
        ]
        assert (results[0]["stock_total"], results[0]["stock_left"]) == (100, 100)
        assert get_user_model().objects.get(username="admin").check_password("admin")
        call_command("seed_demo", stdout=io.StringIO())
        assert Activity.objects.count() == 6

    def test_access_is_printed_and_set_and_lists_are_replaced_all_or_none(self, capsys, tmp_path):
        activity, allow, deny = offer(), tmp_path / "allow.csv", tmp_path / "deny.csv"
        allow.write_text("user_id\n7\n8\n")
        deny.write_text("9\n")
        number = str(activity.pk)
        call_command("access", number)
        assert capsys.readouterr().out.splitlines() == [
            "asks_max\t20", "asks_window_s\t10", "rate_max\t", "ramp_s\t0", "challenge\tOFF", "challenge_effort\t50000",
            "pressure_min\t500", "audience\tEVERYBODY", "gray_percent\t100", "coming_soon\tFalse", "let_in\t0",
            "kept_out\t0",
        ]  # fmt: skip
        values = ["asks_max=", "gray_percent=0", "challenge=pressure", "coming_soon=yes"]
        call_command("access", number, set=values, allow=str(allow), deny=str(deny))
        lines = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
        changed = {name: lines[name] for name in ("asks_max", "gray_percent", "challenge", "coming_soon")}
        assert changed == {"asks_max": "", "gray_percent": "0", "challenge": "PRESSURE", "coming_soon": "True"}
        assert (lines["let_in"], lines["kept_out"]) == ("2", "1")
        told = AuditEvent.objects.filter(action__in=["access", "listed"]).order_by("id")
        assert [(event.action, event.actor_name) for event in told] == [
            ("access", "command line"), ("listed", "command line"), ("listed", "command line"),
        ]  # fmt: skip
        wanted = SeizeRequest(activity_id=activity.pk, seq=1)
        assert isinstance(coupon_seize(wanted=wanted, user_id=7), Won)
        assert coupon_seize(wanted=wanted, user_id=9).refusal is Refusal.NOT_ELIGIBLE
        before = Activity.objects.filter(pk=activity.pk).values().get()
        deny.write_text("8\n")
        with pytest.raises(UsageError, match="on the other list, for example shopper 8"):
            call_command("access", number, set=["gray_percent=50"], deny=str(deny))
        with pytest.raises(UsageError, match="needs a number of coupons per second"):
            call_command("access", number, set=["ramp_s=5"])
        deny.write_text("9\nnine\n9\n")
        with pytest.raises(UsageError, match=r"line 2: 'nine': No id: .*\(2 such lines\)"):
            call_command("access", number, deny=str(deny))
        with pytest.raises(UsageError, match="no activity 999999999"):
            call_command("access", "999999999", set=["gray_percent=50"])
        assert Activity.objects.filter(pk=activity.pk).values().get() == before
        assert told.count() == 3

    def test_drain_and_preheat_work_without_celery_and_repeat_harmlessly(self, capsys, raw):
        activity = offer()
        assert isinstance(coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7), Won)
        call_command("drain", shard=shard_of(activity.pk))
        assert orjson.loads(capsys.readouterr().out)["inserted"] == 1
        call_command("drain")
        lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["shard"] for line in lines] == list(range(10))
        assert sum(line["inserted"] for line in lines) == 0
        raw.flushall()
        call_command("preheat")
        assert orjson.loads(capsys.readouterr().out)["rebuild"] == [activity.pk]
        assert desk.stock_left([activity.pk]) == {activity.pk: 9}
        assert desk.shard_inspect(shard=shard_of(activity.pk), activity_ids=[]).loaded is True
