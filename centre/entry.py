"""Coming in and going out: log-in by password, as anybody in development, log-out, language, and the script's token."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import authenticate
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import check_for_language
from django.utils.translation import gettext_lazy as _
from django.views.csrf import csrf_failure
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import View

from centre.frame import frame_of
from centre.pages import OwnPage
from centre.sessions import session_end, session_shopper, session_start, session_token
from seize.addresses import client_address
from seize.limits import log_in_pace
from seize.outcomes import Pace
from seize.problems import CONTENT_TYPE, Problem, pace_headers
from seize.requests import ID_MAX

DEMO_SHOPPERS = (1001, 1002, 1003)
_YEAR_S = 365 * 86_400


class LogInForm(forms.Form):
    """A user name and a password."""

    username = forms.CharField(
        label=_("User name"), max_length=150, widget=forms.TextInput({"autocomplete": "username"})
    )
    password = forms.CharField(
        label=_("Password"), max_length=128, strip=False,
        widget=forms.PasswordInput({"autocomplete": "current-password"}),
    )  # fmt: skip

    user_id: int

    def __init__(self, data: Any = None, *, request: HttpRequest | None = None) -> None:
        super().__init__(data)
        self.request = request

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if not self.errors:
            user = authenticate(
                self.request, username=self.cleaned_data["username"], password=self.cleaned_data["password"]
            )  # nobody but an active user
            if user is None or user.pk is None:
                raise forms.ValidationError(_("User name and password do not match."))
            self.user_id = user.pk
        return cleaned


class DemoForm(forms.Form):
    """Any shopper's id: development needs no accounts."""

    shopper = forms.IntegerField(label=_("Shopper’s id"), min_value=1, max_value=ID_MAX)


def next_page(given: str) -> str:
    """Where to go on: a path of this site, or the coupon centre."""
    return given if url_has_allowed_host_and_scheme(given, allowed_hosts=None) else reverse("centre")


@method_decorator(sensitive_post_parameters("password"), name="dispatch")
class LogInPage(OwnPage):
    """``/login?next=``: by password; in development also as any shopper."""

    http_method_names = ("get", "head", "post", "options")

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, LogInForm(), DemoForm())

    def post(self, request: HttpRequest) -> HttpResponse:
        is_demo = "shopper" in request.POST
        if is_demo and not settings.DEVELOPMENT:
            raise Http404
        log_in, demo = (
            LogInForm(None if is_demo else request.POST, request=request),
            DemoForm(request.POST if is_demo else None),
        )
        form: Any = demo if is_demo else log_in
        pace = log_in_pace(address=client_address(request))
        if pace is not None:
            return self._too_often(request, pace)
        if not form.is_valid():
            return self._page(request, log_in, demo, status=422)
        response = HttpResponseRedirect(next_page(request.POST.get("next", "")))
        session_start(response, user_id=form.cleaned_data["shopper"] if is_demo else form.user_id)
        return response

    def _too_often(self, request: HttpRequest, pace: Pace) -> HttpResponse:
        """The page anew: what was typed is not looked at."""
        response = self._page(request, LogInForm(), DemoForm(), status=429, is_too_often=True)
        for name, value in pace_headers(pace).items():
            response.headers[name] = value
        return response

    def _page(
        self, request: HttpRequest, log_in: LogInForm, demo: DemoForm, *, status: int = 200, is_too_often: bool = False
    ) -> HttpResponse:
        return self.answer(
            "centre/login.html", status=status, title=_("Log in"), form=log_in,
            demo=demo if settings.DEVELOPMENT else None, shoppers=DEMO_SHOPPERS, is_too_often=is_too_often,
            next=next_page(request.GET.get("next") or request.POST.get("next", "")),
        )  # fmt: skip


class AccountPage(OwnPage):
    """``/account``: who I am, and the way out."""

    def get(self, _request: HttpRequest) -> HttpResponse:
        if self.shopper is None:
            return HttpResponseRedirect(reverse("shopper-log-in"))
        return self.answer("centre/account.html", title=_("Account"), shopper=self.shopper)


class LogOutView(View):
    """``POST /logout``. Who comes by a link, as from the page that refused the form, is led to where the form is."""

    http_method_names = ("get", "head", "post", "options")

    def get(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(reverse("account"))

    def post(self, request: HttpRequest) -> HttpResponse:
        response = HttpResponseRedirect(reverse("centre"))
        session_end(response)
        return response


class LanguageView(View):
    """``/language/<code>?next=``: a link, so that it works without a script and in pages that are kept for all."""

    http_method_names = ("get", "head", "options")

    def get(self, request: HttpRequest, code: str) -> HttpResponse:
        if code not in dict(settings.LANGUAGES) or not check_for_language(code):
            raise Http404
        response = HttpResponseRedirect(next_page(request.GET.get("next", "")))
        response.set_cookie(
            settings.LANGUAGE_COOKIE_NAME, code, max_age=_YEAR_S, secure=settings.SESSION_COOKIE_SECURE, samesite="Lax"
        )
        return response


@method_decorator(csrf_exempt, name="dispatch")
class TokenView(View):
    """``POST /session/token``: the token with which a page's script presses. It changes nothing.

    Another site can make a browser send this, but not with the cookie, which is ``SameSite``, nor read the answer. What
    a browser says of where it comes from is looked at all the same.
    """

    http_method_names = ("post", "options")

    def post(self, request: HttpRequest) -> HttpResponse:
        shopper = session_shopper(request)
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return _problem(request, Problem("FORBIDDEN"))
        if shopper is None:
            return _problem(request, Problem("UNAUTHENTICATED"))
        return _unkept(JsonResponse(session_token(user_id=shopper)))


def _problem(request: HttpRequest, problem: Problem) -> HttpResponse:
    body = problem.body(instance=request.META["REQUEST_ID"])
    return _unkept(JsonResponse(body, status=problem.status, content_type=CONTENT_TYPE))


def _unkept(response: HttpResponse) -> HttpResponse:
    response.headers["Cache-Control"] = "no-store"
    return response


def form_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """``CSRF_FAILURE_VIEW``: a form that this site did not give out, or gave out too long ago."""
    if request.path_info.startswith("/admin/"):
        return csrf_failure(request, reason=reason)
    frame = frame_of(path=request.get_full_path(), is_known=session_shopper(request) is not None)
    context = {"title": _("This form cannot be taken"), **frame}
    return _unkept(render(request, "centre/refused.html", context, status=403))
