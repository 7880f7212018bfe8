"""The pages: what is on offer, one activity, my coupons. Readable without a script; the scripts press by the API."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from django.conf import settings
from django.core.paginator import Page as PaginatorPage
from django.core.paginator import Paginator
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.functional import cached_property
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.generic import View

from activities.admission import STORE_FAULTS
from activities.listing import TABS, Snapshot, snapshot_for
from activities.packing import takes_gzip
from activities.ready import snapshot_ready
from activities.statuses import CouponStatus
from activities.wallet import STATUSES, CursorInvalid, wallet_page
from centre.cards import card_of, held_of
from centre.frame import frame_of
from centre.sessions import session_shopper
from seize.problems import retry_after
from seize.requests import id_parse
from seize.services import server_time

CARDS_MAX = 50  # of a page
KEPT_MAX = 500  # pages of a snapshot


class Page(View):
    """A page of the coupon centre, in the language of whoever asks."""

    http_method_names: tuple[str, ...] = ("get", "head", "options")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = super().dispatch(request, *args, **kwargs)
        except (*STORE_FAULTS, OperationalError, InterfaceError):
            response = self.answer("centre/away.html", status=503, title=_("Back in a moment"))
            response.headers["Retry-After"] = retry_after(earliest_s=2, spread_s=4)["Retry-After"]
        patch_vary_headers(response, ("Cookie", "Accept-Language"))
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    def answer(self, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
        """A whole page."""
        return HttpResponse(self.rendered(template, **context), status=status)

    def rendered(self, template: str, *, path: str | None = None, **context: Any) -> str:
        """A page's HTML: of a request it takes the language, ``is_known``, and the path where none is given."""
        frame = frame_of(path=path or self.request.get_full_path(), is_known=self.is_known)
        return render_to_string(template, {**frame, **context})

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as whoever looks sees it."""
        return snapshot if self.shopper is None else snapshot_for(snapshot, user_id=self.shopper)

    def kept(
        self, snapshot: Snapshot, seen: Snapshot, key: tuple[object, ...], *, make: Callable[[], str]
    ) -> HttpResponse:
        """A whole page that depends on the snapshot, what is seen of it, the key, language and ``is_known`` alone."""
        ready = _kept.page(snapshot, (*key, _open_in(seen), get_language(), self.is_known), make=make)
        return ready.response(accept_encoding=self.request.headers.get("Accept-Encoding", ""))

    @cached_property
    def shopper(self) -> int | None:
        """Who has logged in."""
        return session_shopper(self.request)

    @property
    def is_known(self) -> bool:
        """Whether somebody has logged in; all that a page may show of them that is kept for others."""
        return self.shopper is not None

    def missing(self) -> HttpResponse:
        """There is no such page."""
        return self.answer("centre/missing.html", status=404, title=_("There is nothing here."))


@dataclass(frozen=True, slots=True)
class _Ready:
    """A rendered page, also compressed. Nothing in it is secret, so its compressed length tells nothing (BREACH)."""

    html: bytes
    packed: bytes

    def response(self, *, accept_encoding: str) -> HttpResponse:
        response = HttpResponse(self.html)
        if takes_gzip(accept_encoding):
            response = HttpResponse(self.packed, headers={"Content-Encoding": "gzip"})
        patch_vary_headers(response, ("Accept-Encoding",))
        return response


def _open_in(seen: Snapshot) -> tuple[tuple[str, bool], ...]:
    """Of what is not open to everybody, what is seen, and whether as coming soon."""
    released = (name for name, (_body, release) in seen.every.items() if release is not None)
    return tuple((name, seen.activities[name]["coming_soon"]) for name in released if name in seen.activities)


class _Kept:
    """Pages rendered of the same snapshot of the list, for the crowd that reloads before the start."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._pages: dict[tuple[object, ...], _Ready] = {}

    def page(self, snapshot: Snapshot, key: tuple[object, ...], *, make: Callable[[], str]) -> _Ready:
        """The page that was made of this snapshot, or is made now; two threads may both make it."""
        if self._snapshot is not snapshot or len(self._pages) >= KEPT_MAX:
            self._snapshot, self._pages = snapshot, {}
        pages = self._pages
        if key not in pages:
            html = make().encode()
            pages[key] = _Ready(html, gzip.compress(html, mtime=0))
        return pages[key]


_kept = _Kept()


class CentrePage(Page):
    """``/?tab=ongoing|upcoming``: the coupon centre."""

    def get(self, request: HttpRequest) -> HttpResponse:
        tab = request.GET.get("tab", "ongoing")
        if tab not in TABS:
            return self.missing()
        snapshot = snapshot_ready()
        seen = self.seen(snapshot)
        pages = Paginator(_bodies(seen, tab), CARDS_MAX)
        page = pages.get_page(request.GET.get("page"))  # the nearest: there may have been more a moment ago
        key = (tab, page.number)
        return self.kept(snapshot, seen, key, make=lambda: self._rendered(seen, tab, page))

    def _rendered(self, snapshot: Snapshot, tab: str, pages: PaginatorPage) -> str:
        language = get_language() or ""
        cards = [card_of(body, language=language, is_known=self.is_known) for body in pages.object_list]
        numbers = {name: sum(body["status"] == TABS[name] for body in snapshot.activities.values()) for name in TABS}
        path = f"{reverse('centre')}?tab={tab}" + (f"&page={pages.number}" if pages.number > 1 else "")
        return self.rendered(
            "centre/centre.html", path=path, is_personal=snapshot.is_personal, title=_("Coupon centre"), tab=tab,
            cards=cards, pages=pages,
            tabs=[("ongoing", _("On now"), numbers["ongoing"]), ("upcoming", _("Coming up"), numbers["upcoming"])],
        )  # fmt: skip


def _bodies(snapshot: Snapshot, tab: str) -> list[dict[str, Any]]:
    """What a tab shows. What is paused is seen where it was pressed: a shopper must not think that it is gone."""
    wanted = {"ongoing": ("ongoing", "paused"), "upcoming": ("upcoming",)}[tab]
    return [body for status in wanted for body in snapshot.activities.values() if body["status"] == status]


class ActivityPage(Page):
    """``/activity/<id>``: one activity with its rules."""

    def get(self, request: HttpRequest, activity_id: str) -> HttpResponse:
        known = id_parse(activity_id)
        snapshot = snapshot_ready()
        seen = self.seen(snapshot)
        body = None if known is None else seen.activities.get(str(known))
        if body is None:
            return self.missing()

        def make() -> str:
            card = card_of(body, language=get_language() or "", is_known=self.is_known)
            path = reverse("centre-activity", args=[activity_id])
            return self.rendered(
                "centre/activity.html", path=path, is_personal=seen.is_personal, title=body["name"], card=card
            )

        return self.kept(snapshot, seen, (activity_id,), make=make)


class OwnPage(Page):
    """A page that is one shopper's, or has a form: nobody keeps it."""

    def answer(self, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
        """A whole page; with the request, of which forms take their CSRF token."""
        frame = frame_of(path=self.request.get_full_path(), is_known=self.is_known)
        response = HttpResponse(render_to_string(template, {**frame, **context}, request=self.request), status=status)
        response.headers["Cache-Control"] = "no-store"
        return response


class WalletPage(OwnPage):
    """``/coupons?status=&cursor=``: my coupons, those on their way first."""

    def get(self, request: HttpRequest) -> HttpResponse:
        if self.shopper is None:
            if not settings.JWT_SIGNING_KEY:
                return self.missing()
            return HttpResponseRedirect(f"{reverse('shopper-log-in')}?{urlencode({'next': request.get_full_path()})}")
        status = request.GET.get("status", "unused")
        if status not in STATUSES:
            return self.missing()
        try:
            page = wallet_page(user_id=self.shopper, status=status, cursor=request.GET.get("cursor"), now=server_time())
        except CursorInvalid:
            return self.missing()
        language = get_language() or ""
        coupons = [held_of(body, language=language) for body in cast("list[dict[str, Any]]", page["results"])]
        return self.answer(
            "centre/wallet.html", title=_("My coupons"), coupons=coupons, shown=status,
            statuses=[(name, CouponStatus(name.upper()).label) for name in STATUSES], next_cursor=page["next_cursor"],
            is_waiting=any(held.body["state"] == "pending" for held in coupons),
        )  # fmt: skip
