"""The pages as a browser without scripts reads them: what they say, to whom, and what they may load."""

import gzip
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from services import port_pick

from activities import services
from activities.models import Coupon
from centre import pages
from centre.sessions import SESSION
from seize.outcomes import Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from seize.tokens import access_token_issue, token_issue
from tests.factories import drain, issued, offer, percent_terms, shards_declare_loaded

pytestmark = pytest.mark.django_db(transaction=True)


def as_shopper(user_id: int) -> Client:
    client = Client()
    client.cookies["shopper"] = token_issue(kind=SESSION, user_id=user_id, lifetime_s=86_400)
    return client


def text_of(response) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def press(activity, user_id: int, seq: int = 1):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


# -- What is on offer -----------------------------------------------------------------------------------


def test_centre_shows_what_is_on_offer_with_its_stock_in_words_of_the_language(client):
    activity = offer(name="双十二", stock_total=3)
    offer(name="Tomorrow", starts_at=timezone.now() + timedelta(days=1), ends_at=timezone.now() + timedelta(days=2))
    assert isinstance(press(activity, 1), Won)
    english = text_of(client.get("/"))
    assert "<title>Coupon centre</title>" in client.get("/").content.decode()
    for words in ("双十二", "¥20", "from ¥100", "20.00 off orders from 100.00", "2 left", "On now 1", "Coming up 1"):
        assert words in english
    assert "Tomorrow" not in english
    chinese = text_of(client.get("/", HTTP_ACCEPT_LANGUAGE="zh-CN"))
    for words in ("领券中心", "满100可用", "满100减20", "剩 2 张", "疯抢中 1", "即将开始 1", "登录后抢券"):
        assert words in chinese


def test_upcoming_has_its_own_tab_with_the_moment_of_its_start(client):
    start = timezone.now() + timedelta(days=1)
    offer(name="Tomorrow", starts_at=start, ends_at=start + timedelta(days=1), **percent_terms())
    page = text_of(client.get("/?tab=upcoming"))
    assert "Tomorrow" in page
    assert "20% off" in page
    assert f"From {timezone.localtime(start):%m-%d %H:%M}" in page
    assert "Nothing is on offer right now" in text_of(client.get("/"))


def test_paused_one_stays_where_it_was_pressed_and_says_so(client):
    activity = offer(name="双十二")
    services.activity_pause(activity_id=activity.pk, now=timezone.now())

    shards_declare_loaded()
    page = text_of(client.get("/"))
    assert "双十二" in page
    assert "Paused" in page


def test_page_of_one_activity_has_its_rules(client):
    activity = offer(name="双十二", rules_text="One per household.\n\nNot with other offers.", per_user_limit=3)
    page = text_of(client.get(f"/activity/{activity.pk}"))
    for words in ("双十二", "One per household.", "Not with other offers.", "at most 3", "7 × 24 hours from seizing"):
        assert words in page


def test_text_of_staff_is_text(client):
    activity = offer(name="<script>alert(1)</script>", rules_text="<img src=x>")
    for page in ("/", f"/activity/{activity.pk}"):
        body = client.get(page).content.decode()
        assert "<script>alert" not in body
        assert "<img" not in body


@pytest.mark.parametrize(
    "path",
    ["/?tab=gone", "/activity/0", "/activity/x", "/activity/999", "/activity/9223372036854775808", "/language/tlh"],
)
def test_what_is_not_there_is_a_page_that_says_so(client, path):
    offer()
    assert client.get(path).status_code == 404


def test_pages_answer_while_redis_is_away(client, settings):
    settings.REDIS_URL = f"redis://127.0.0.1:{port_pick()}/0"
    for path in ("/", "/activity/1"):
        response = client.get(path)
        assert response.status_code == 503
        assert int(response["Retry-After"]) >= 2
        assert "Coupons that you have won are safe" in text_of(response)
    assert as_shopper(7).get("/coupons").status_code == 503


def test_crowd_that_reloads_costs_no_query_and_no_second_rendering(
    client, settings, monkeypatch, django_assert_num_queries
):
    settings.LIST_CACHE_S = 86_400.0
    rendered, packed = [], []
    real, pack = pages.render_to_string, gzip.compress
    monkeypatch.setattr(pages.gzip, "compress", lambda html, **given: packed.append(len(html)) or pack(html, **given))
    monkeypatch.setattr(pages, "render_to_string", lambda name, given: rendered.append(name) or real(name, given))
    offer(name="双十二")
    with django_assert_num_queries(0):
        first = client.get("/").content
        assert client.get("/?utm=a").content == first
        known = as_shopper(7).get("/").content
        for page in ("0", "2", "x"):  # of one
            assert client.get("/", {"page": page}).content == first
        small = client.get("/", HTTP_ACCEPT_ENCODING="gzip")
        assert small["Content-Encoding"] == "gzip"
        assert gzip.decompress(small.content) == first
    assert rendered == ["centre/centre.html"] * 2, "for nobody, and for whoever has logged in"
    assert packed == [len(first), len(known)]
    assert first != known
    assert b">Log in<" in first
    assert b">Log in<" not in known
    assert b"utm" not in first


def test_more_activities_than_a_page_takes_are_on_the_next_ones(client):
    names = [f"Sale {number:03}" for number in range(2 * pages.CARDS_MAX + 10)]
    for name in names:
        offer(name=name)
    seen, path = [], "/?tab=ongoing"
    for number in (1, 2, 3):
        page = client.get(path).content.decode()
        assert f"Page {number} of 3" in text_of(client.get(path))
        seen += re.findall(r">(Sale \d\d\d)</a>", page)
        path = (re.findall(r'href="([^"]+)" rel="next"', page) or [""])[0].replace("&amp;", "&")
    assert path == ""
    assert sorted(seen) == names
    [back] = re.findall(r'href="([^"]+)" rel="prev"', page)
    assert back == "/?tab=ongoing&amp;page=2"
    assert re.search(r'href="/language/zh-hans\?next=%2F%3Ftab%3Dongoing%26page%3D3"', page)


def test_site_that_only_verifies_tokens_has_no_button_to_press(client, settings):
    settings.JWT_SIGNING_KEY = ""
    activity = offer(name="双十二")
    sold_out = offer(name="Gone", stock_total=1)
    assert isinstance(press(sold_out, 1), Won)
    for path in ("/", f"/activity/{activity.pk}"):
        page = client.get(path).content.decode()
        assert f'data-card="{activity.pk}"' in page
        assert "data-press" not in page
        assert ">Log in" not in page
    assert '<p class="note" data-note>Sold out</p>' in client.get("/").content.decode()


# -- My coupons -----------------------------------------------------------------------------------------


def test_wallet_shows_a_win_at_once_and_the_row_a_second_later():
    activity = offer(name="双十二")
    press(activity, 7)
    shopper = as_shopper(7)
    page = shopper.get("/coupons")
    assert "Yours, on its way" in text_of(page)
    assert b"data-waiting" in page.content
    drain(activity)
    page = shopper.get("/coupons")
    assert f"Unused {Coupon.objects.get().pk}" in text_of(page)
    assert b"data-waiting" not in page.content
    assert page["Cache-Control"] == "no-store"
    assert "双十二" not in text_of(as_shopper(8).get("/coupons"))


def test_wallet_goes_by_status_and_by_pages():
    activity = offer()
    for seq in range(1, 23):
        issued(activity, seq=seq)
    old = issued(offer(name="Bygone"), seized_at=timezone.now() - timedelta(days=30))
    shopper = as_shopper(7)
    first = shopper.get("/coupons").content.decode()
    assert first.count("<article") == 20
    [more] = re.findall(r'href="(/coupons\?status=unused&amp;cursor=c\d+)"', first)
    assert shopper.get(more.replace("&amp;", "&")).content.decode().count("<article") == 2
    assert f"Expired {old.pk}" in text_of(shopper.get("/coupons?status=expired"))
    for path in ("/coupons?status=all", "/coupons?cursor=1"):
        assert shopper.get(path).status_code == 404


def test_wallet_of_nobody_leads_to_the_log_in_and_back(client):
    response = client.get("/coupons?status=redeemed")
    assert (response.status_code, response["Location"]) == (302, "/login?next=%2Fcoupons%3Fstatus%3Dredeemed")


# -- What goes with a page ------------------------------------------------------------------------------

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def test_page_may_load_only_its_own_and_has_no_script_in_it(client):
    activity = offer()
    for path in ("/", f"/activity/{activity.pk}", "/login", "/activity/x"):
        response = client.get(path)
        assert sorted(response["Content-Security-Policy"].split("; ")) == sorted(STRICT.split("; "))
        body = response.content.decode()
        for tag in re.findall(r"<script[^>]*>", body):
            assert "src=" in tag or 'type="application/json"' in tag
        assert not re.search(r"<style|\sstyle=|\son\w+=", body)
    assert "Content-Security-Policy" not in client.get("/market/consumer/activity/list")


def test_back_office_may_load_only_its_own_too(admin_client):
    policy = dict(part.split(" ", 1) for part in admin_client.get("/admin/")["Content-Security-Policy"].split("; "))
    assert policy["script-src"] == "'self' 'unsafe-inline' 'unsafe-eval'"
    assert policy["default-src"] == "'none'"


def test_page_is_kept_by_no_shared_cache_and_differs_by_cookie_and_language(client):
    offer()
    response = client.get("/")
    assert response["Cache-Control"] == "private, no-cache"
    assert {"Cookie", "Accept-Language", "Accept-Encoding"} <= set(re.split(r",\s*", response["Vary"]))


def test_language_is_switched_by_a_link_and_kept(client):
    activity = offer()
    page = client.get(f"/activity/{activity.pk}").content.decode()
    [link] = re.findall(r'href="(/language/zh-hans\?next=[^"]+)"', page)
    response = client.get(link)
    assert (response.status_code, response["Location"]) == (302, f"/activity/{activity.pk}")
    assert "领券中心" in text_of(client.get("/", HTTP_ACCEPT_LANGUAGE="en"))


@pytest.mark.parametrize(
    "next_page", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_no_link_leads_to_another_site(client, next_page):
    assert client.get("/language/en", {"next": next_page})["Location"] == "/"
    response = client.post("/login", {"shopper": "1001", "next": next_page})
    assert (response.status_code, response["Location"]) == (302, "/")


def test_access_token_is_no_cookie_and_a_cookie_is_no_access_token(api):
    client = Client()
    client.cookies["shopper"] = access_token_issue(user_id=7, lifetime_s=86_400)
    assert client.get("/coupons").status_code == 302
    session = token_issue(kind=SESSION, user_id=7, lifetime_s=86_400)
    assert api.get("/market/consumer/coupon/my", HTTP_AUTHORIZATION=f"Bearer {session}").status_code == 401
