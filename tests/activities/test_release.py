"""Gray release in lists and details: everybody sees what is open to them, and the desk lets in the same shoppers."""

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from activities import admission
from activities.access import activity_access_change, activity_listed_replace
from activities.admission import list_publish
from activities.models import Listed
from activities.release import share_of
from activities.services import activity_pause
from couponsite.asgi import front
from seize.outcomes import Refused, Won
from seize.services import coupons_seize
from seize.tokens import access_token_issue
from tests.factories import offer
from tests.seize.servers import Counted, ask, raw_request, served

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/market/consumer/activity/list"


def access(activity, **values):
    activity_access_change(activity_id=activity.pk, values=values, now=timezone.now())


def listed(activity, verdict, *users):
    activity_listed_replace(activity_id=activity.pk, verdict=verdict, user_ids=users, now=timezone.now())


def seen(client, *, path=LIST):
    return {body["id"]: (body["status"], body["coming_soon"]) for body in client.get(path).json()["results"]}


def gets_in(activity, user_id: int) -> bool:
    [outcome] = coupons_seize(activity_id=activity.pk, shoppers=[(user_id, 1)])
    assert isinstance(outcome, Won) or outcome.refusal.name == "NOT_ELIGIBLE"
    return isinstance(outcome, Won)


def test_what_is_open_to_some_is_hidden_from_the_others_in_lists_and_details(api, shopper_api):
    activity, open_to_all = offer(stock_total=100), offer()
    access(activity, gray_percent=30)
    users = range(1, 101)
    inside = {user for user in users if share_of(uid=activity.uid, user_id=user) < 3000}
    assert 10 < len(inside) < 60
    assert {user for user in users if gets_in(activity, user)} == inside
    ids = {str(activity.pk), str(open_to_all.pk)}
    for user in users:
        there = ids if user in inside else {str(open_to_all.pk)}
        assert set(seen(shopper_api(user))) == there
        detail = shopper_api(user).get(f"/market/consumer/activity/{activity.pk}")
        assert detail.status_code == (200 if user in inside else 404)
    assert set(seen(api)) == {str(open_to_all.pk)}
    assert api.get(f"/market/consumer/activity/{activity.pk}").status_code == 404


def test_coming_soon_announces_it_to_those_who_are_not_let_in(api, shopper_api):
    activity = offer()
    access(activity, gray_percent=0, coming_soon=True)
    listed(activity, Listed.Verdict.ALLOW, 7)
    assert seen(shopper_api(7)) == {str(activity.pk): ("ongoing", False)}
    assert seen(shopper_api(8)) == seen(api) == {str(activity.pk): ("upcoming", True)}
    assert seen(api, path=LIST + "?tab=ongoing") == {}
    assert seen(shopper_api(7), path=LIST + "?tab=ongoing") == {str(activity.pk): ("ongoing", False)}
    activity_pause(activity_id=activity.pk, now=timezone.now())
    assert seen(api) == {str(activity.pk): ("upcoming", True)}


def test_who_is_kept_out_sees_nothing_of_it_and_everybody_else_sees_it(api, shopper_api):
    activity = offer()
    listed(activity, Listed.Verdict.DENY, 7, 9)
    assert seen(shopper_api(7)) == {}
    assert seen(shopper_api(8)) == seen(api) == {str(activity.pk): ("ongoing", False)}
    assert [gets_in(activity, user) for user in (7, 8, 9)] == [False, True, False]


def test_staff_preview_is_seen_by_staff_alone(api, shopper_api):
    activity = offer()
    boss = get_user_model().objects.create_user("boss", is_staff=True)
    access(activity, audience="STAFF")
    assert seen(shopper_api(boss.pk)) == {str(activity.pk): ("ongoing", False)}
    assert seen(shopper_api(boss.pk + 1)) == seen(api) == {}
    assert gets_in(activity, boss.pk)
    assert not gets_in(activity, boss.pk + 1)


def test_lists_and_percentages_are_in_force_at_once_in_a_sale(shopper_api):
    activity = offer()
    access(activity, gray_percent=0)
    assert not gets_in(activity, 7)
    listed(activity, Listed.Verdict.ALLOW, 7)
    assert gets_in(activity, 7)
    listed(activity, Listed.Verdict.ALLOW, 8)
    assert [gets_in(activity, user) for user in (8, 9)] == [True, False]
    assert set(seen(shopper_api(7))) == set()  # who has one keeps it, in the wallet
    access(activity, gray_percent=100)
    assert gets_in(activity, 9)


def test_answer_that_is_one_shoppers_is_kept_by_nobody_else(api, shopper_api):
    activity = offer()
    public = api.get(LIST)
    assert (public["Cache-Control"], "Authorization" in public["Vary"]) == ("public, max-age=1", True)
    assert shopper_api(7).get(LIST)["Cache-Control"] == "public, max-age=1"  # all see the same
    access(activity, gray_percent=0)
    own = shopper_api(7).get(LIST)
    assert (own["Cache-Control"], "Authorization" in own["Vary"]) == ("private, no-cache", True)
    assert own["ETag"] == api.get(LIST)["ETag"]
    assert shopper_api(7).get(LIST, HTTP_IF_NONE_MATCH=own["ETag"]).status_code == 304
    assert api.get(LIST)["Cache-Control"] == "public, max-age=1"
    assert api.get(LIST, HTTP_AUTHORIZATION="Bearer nonsense").json()["results"] == []


@pytest.mark.parametrize("kind", ["asgi", "protocol"])
def test_front_gives_the_public_list_to_the_crowd_and_leaves_a_shoppers_own_to_django(kind):
    activity = offer()
    token = access_token_issue(user_id=7, lifetime_s=86_400)
    mine = raw_request("GET", LIST, headers=(("Host", "localhost"), ("Authorization", f"Bearer {token}")))
    everybodys = raw_request("GET", LIST, headers=(("Host", "localhost"),))
    made = front()
    with served(Counted(made.shortcuts, made.django), kind=kind) as server:
        ask(server.port, everybodys, method="GET")
        assert str(activity.pk).encode() in ask(server.port, mine, method="GET").body
        assert server.front.taken == 2
        access(activity, gray_percent=0)
        listed(activity, Listed.Verdict.ALLOW, 7)
        assert str(activity.pk).encode() not in ask(server.port, everybodys, method="GET").body
        assert server.front.taken == 3
        assert str(activity.pk).encode() in ask(server.port, mine, method="GET").body
        assert server.front.taken == 3


def test_list_that_was_written_before_there_were_releases_is_open_to_everybody(api, monkeypatch):
    activity = offer()
    older = admission.list_element

    def element(row):
        return {name: value for name, value in older(row).items() if name not in ("release", "challenge")}

    monkeypatch.setattr(admission, "list_element", element)
    list_publish()
    assert seen(api) == {str(activity.pk): ("ongoing", False)}
    assert api.get(LIST).json()["results"][0]["challenge"] == "off"


def test_refused_shopper_is_told_so_by_name(shopper_api):
    activity = offer()
    access(activity, gray_percent=0)
    answer = shopper_api(7).post("/market/consumer/coupon/seize", {"id": str(activity.pk), "seq": 1}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "NOT_ELIGIBLE")
    [outcome] = coupons_seize(activity_id=activity.pk, shoppers=[(7, 1)])
    assert isinstance(outcome, Refused)
