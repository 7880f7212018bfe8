"""The public list and detail: live stock, status by Redis' clock, and no way through to MySQL."""

from datetime import datetime, timedelta

import orjson
import pytest
from django.utils import timezone

from activities import admission, services
from seize import desk
from seize.keys import LIST_KEY
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import offer, percent_terms

URL = "/market/consumer/activity/list"
HOUR = timedelta(hours=1)


def names(response) -> list[str]:
    return [result["name"] for result in response.json()["results"]]


@pytest.mark.django_db(transaction=True)
class TestList:
    def test_tabs_show_what_runs_and_what_comes_without_paused_and_voided(self, api):
        now = timezone.now()
        offer(name="running")
        offer(name="earlier", starts_at=now - 2 * HOUR)
        offer(name="coming", starts_at=now + HOUR, ends_at=now + 2 * HOUR)
        services.activity_pause(activity_id=offer(name="paused").pk, now=now)
        services.activity_void(activity_id=offer(name="voided").pk, reason="x", now=now)
        assert names(api.get(URL, {"tab": "ongoing"})) == ["earlier", "running"]
        assert names(api.get(URL, {"tab": "upcoming"})) == ["coming"]
        assert names(api.get(URL))[:2] == ["earlier", "running"]
        assert sorted(names(api.get(URL))[2:]) == ["coming", "paused", "voided"]

    def test_element_is_as_documented(self, api):
        activity = offer(name="满100减20", stock_total=1000, **percent_terms())
        [element] = api.get(URL).json()["results"]
        assert list(element) == [
            "id", "name", "kind", "min_spend", "amount_off", "pay_percent", "max_off", "min_payable", "status",
            "starts_at", "ends_at", "stock_total", "stock_left", "per_user_limit", "challenge", "coming_soon",
        ]  # fmt: skip
        assert element["id"] == str(activity.pk)
        assert element["name"] == "满100减20"
        assert (element["min_spend"], element["amount_off"]) == ("100.00", None)
        assert (element["pay_percent"], element["max_off"]) == (80, "50.00")
        assert datetime.fromisoformat(element["starts_at"]) == activity.starts_at.replace(
            microsecond=activity.starts_at.microsecond // 1000 * 1000
        )

    def test_l16_stock_is_live(self, api):
        activity = offer(stock_total=10)
        for user_id in (1, 2, 3):
            coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)
        assert api.get(URL).json()["results"][0]["stock_left"] == 7
        assert api.get(f"/market/consumer/activity/{activity.pk}").json()["stock_left"] == 7

    def test_stock_that_redis_does_not_know_is_null_not_zero(self, api, raw):
        activity = offer()
        raw.hdel(f"COUPON:RESOURCE:STOCK:{{{activity.pk % 10}}}", str(activity.pk))
        assert api.get(URL).json()["results"][0]["stock_left"] is None

    def test_l15_status_shown_is_computed_when_it_is_read(self, api):
        """The list in Redis is minutes old; the status in the answer is not."""
        activity = offer()
        seen: set[str] = set()
        phase = timedelta(milliseconds=200)
        while seen != {"upcoming", "ongoing", "ended"}:  # again and more slowly, should the machine sleep through one
            now = timezone.now()
            activity.starts_at, activity.ends_at = now + phase, now + 2 * phase
            phase *= 2
            activity.save()
            admission.list_publish()
            starts_ms, ends_ms = (admission.unix_ms(moment) for moment in (activity.starts_at, activity.ends_at))
            status = ""
            while status != "ended":
                body = api.get(f"/market/consumer/activity/{activity.pk}").json()
                status = body["status"]
                at_ms = admission.unix_ms(datetime.fromisoformat(body["server_time"]))
                assert status == ("upcoming" if at_ms < starts_ms else "ongoing" if at_ms < ends_ms else "ended")
                seen.add(status)

    def test_s15_list_holds_what_runs_or_starts_within_a_month_and_what_ended_lately(self, raw):
        now = timezone.now()
        day = timedelta(days=1)
        inside = [
            offer(),
            offer(starts_at=now + 30 * day, ends_at=now + 40 * day),
            offer(starts_at=now - 9 * day, ends_at=now - day),
        ]
        offer(starts_at=now + 32 * day, ends_at=now + 40 * day)
        offer(starts_at=now - 9 * day, ends_at=now - 8 * day)
        admission.list_publish()
        listed = {element["id"] for element in orjson.loads(raw.get(LIST_KEY))}
        assert listed == {str(activity.pk) for activity in inside}

    def test_detail_has_rules_and_validity(self, api):
        activity = offer(rules_text="One per person.")
        body = api.get(f"/market/consumer/activity/{activity.pk}").json()
        assert (body["rules_text"], body["valid_days"], body["valid_until"]) == ("One per person.", 7, None)


def test_s25_unknown_id_costs_no_query(api, raw):
    """No database mark: a query would raise. Cache penetration has nothing to penetrate to."""
    raw.set(LIST_KEY, "[]")
    for unknown in ("1", "9223372036854775807", "0", "-1", "abc", "007", "1e3"):
        response = api.get(f"/market/consumer/activity/{unknown}")
        assert response.status_code == 404
        assert response.json()["code"] == "NOT_FOUND"


def test_list_that_is_absent_is_503_and_never_empty(api):
    for url in (URL, "/market/consumer/activity/1"):
        response = api.get(url)
        assert response.status_code == 503
        assert response.json()["code"] == "NOT_READY"


def test_unknown_tab_is_refused(api, raw):
    raw.set(LIST_KEY, "[]")
    assert api.get(URL, {"tab": "all"}).status_code == 400
    assert api.get(URL, {"tab": "ongoing"}).json()["results"] == []


def test_redis_that_is_down_is_503(api, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert api.get(URL).status_code == 503


@pytest.mark.django_db(transaction=True)
def test_list_write_loses_against_a_later_reader(raw):
    offer()
    written = raw.get(LIST_KEY)
    assert desk.list_write(stamp_us=1, text="[]") is False
    assert raw.get(LIST_KEY) == written


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (URL + "?tabb=ongoing", "'tabb'"),
        (URL + "?tab=ongoing&tab=ongoing", "'tab' must be given once"),
        (URL + "?tab=ongoing&page=2", "'page'"),
        ("/market/consumer/activity/1?fields=name", "'fields'"),
    ],
)
def test_unknown_or_repeated_parameter_is_refused_and_named(api, path, named):
    response = api.get(path)
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
    assert named in response.json()["detail"]
