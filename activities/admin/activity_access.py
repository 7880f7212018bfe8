"""An activity's access page: who may seize, and how fast; its two lists of shoppers, each replaced by a file."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin
from unfold.decorators import action, display

from activities.access import COUNTED, activity_access_change, activity_listed_replace
from activities.access_forms import AccessForm, ListedFileForm
from activities.actors import actor_of
from activities.admission import desk_now
from activities.changes import access_permission
from activities.confirmation import confirmation_view
from activities.contention import ContentionLost
from activities.exports import LISTED_NAMES
from activities.listed import Purpose, UploadLost, listed_look, upload_find, upload_forget, upload_keep
from activities.models import Activity, Listed
from activities.workflow import ActivityRefused, activity_may

SHOWN_MAX = 20  # lines of a file, and mistakes in it, that the preview shows
BUSY = _("Somebody else is working on this. Please try again.")
LISTS = {
    Listed.Verdict.ALLOW: (
        _("List of those let in"),
        _(
            "They belong to the percent of shoppers in any case: set that to 0 to sell to them alone. "
            "Of an activity for staff only they get nothing."
        ),
    ),
    Listed.Verdict.DENY: (_("List of those kept out"), _("They get no coupon, whatever else is set here.")),
}


@dataclass(frozen=True, slots=True)
class ListCard:
    """One of the two lists as the page shows it."""

    slug: str
    title: str | Promise
    explanation: str | Promise
    count: int
    form: ListedFileForm
    export: str


class AccessPages(ModelAdmin):
    """The page, and what its lists lead to: look at a file, confirm it, empty a list."""

    def get_urls(self) -> list[URLPattern]:
        views = {"": self.list_look, "confirm/": require_POST(self.list_confirm), "empty/": self.list_empty}
        mine = [
            path(
                f"<path:object_id>/access/<slug:slug>/{end}",
                self.admin_site.admin_view(view),
                name=f"activities_activity_list_{view.__name__.removeprefix('list_')}",
            )
            for end, view in views.items()
        ]
        return [*mine, *super().get_urls()]

    @action(description=_("Access"), url_path="access")
    def access(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The form of limits, challenge and who is let in, and below it the lists."""
        activity = self._accessible(request, object_id)
        form = self._access_form(request, activity)
        if request.method == "POST" and form.is_valid():
            if not form.changed:
                messages.info(request, gettext("Nothing was changed."))
                return self._to_page(activity)
            try:
                activity_access_change(
                    activity_id=activity.pk,
                    values=form.changed,
                    now=desk_now(),
                    by=actor_of(request),
                    expected_version=form.cleaned_data["expected_version"],
                )
            except ActivityRefused as refused:
                form.add_error(None, str(refused))
            except ContentionLost:
                form.add_error(None, BUSY)
            else:
                return self._done(request, activity, gettext("Access"))
        return self._page(request, activity, form)

    # The lists

    def list_look(self, request: HttpRequest, object_id: str, slug: str) -> HttpResponse:
        """What a file would make of a list; nothing is stored but the ids, in the cache, for whoever confirms it."""
        activity, verdict = self._accessible(request, object_id), _verdict_of(slug)
        form = ListedFileForm(request.POST, request.FILES, auto_id=f"id_{slug}_%s")
        if request.method != "POST":
            return self._to_page(activity)
        if not form.is_valid():
            return self._page(request, activity, self._access_form(None, activity), upload=(verdict, form))
        purpose, token = _purpose(request, activity, verdict), ""
        try:
            content = form.cleaned_data["file"].read()
            look = listed_look(activity_id=activity.pk, verdict=verdict, content=content)
            if not look.file.mistakes:
                token = upload_keep(purpose, user_ids=look.file.user_ids, version=activity.version)
        except ValidationError as error:
            form.add_error("file", error)
        except UploadLost:
            form.add_error("file", gettext("The file could not be kept for the preview. Please try again."))
        if form.errors:
            return self._page(request, activity, self._access_form(None, activity), upload=(verdict, form))
        return self._render(
            request,
            activity,
            "admin/listed_preview.html",
            title=LISTS[verdict][0],
            slug=slug,
            look=look,
            first=look.file.user_ids[:SHOWN_MAX],
            mistakes=look.file.mistakes[:SHOWN_MAX],
            token=token,
            back=_page_url(activity),
        )

    def list_confirm(self, request: HttpRequest, object_id: str, slug: str) -> HttpResponse:
        """Replace the list by what was looked at."""
        activity, verdict = self._accessible(request, object_id), _verdict_of(slug)
        purpose, token = _purpose(request, activity, verdict), request.POST.get("token", "")
        try:
            version, user_ids = upload_find(purpose, token=token)
            activity_listed_replace(
                activity_id=activity.pk,
                verdict=verdict,
                user_ids=user_ids,
                now=desk_now(),
                by=actor_of(request),
                expected_version=version,
            )
        except UploadLost:
            messages.error(request, gettext("The file is not kept any more: choose it again."))
        except ActivityRefused as refused:
            messages.error(request, str(refused))
        except ContentionLost:
            messages.error(request, BUSY)
        else:
            upload_forget(purpose, token=token)
            return self._done(request, activity, LISTS[verdict][0])
        return self._to_page(activity)

    def list_empty(self, request: HttpRequest, object_id: str, slug: str) -> HttpResponse:
        """Ask, then take everybody off a list."""
        activity, verdict = self._accessible(request, object_id), _verdict_of(slug)
        return confirmation_view(
            self,
            request,
            subject=activity,
            label=LISTS[verdict][0],
            question=_("Take everybody off this list?"),
            form=forms.Form(request.POST if request.method == "POST" else None),
            call=lambda _data: activity_listed_replace(
                activity_id=activity.pk, verdict=verdict, user_ids=(), now=desk_now(), by=actor_of(request)
            ),
            refusal=ActivityRefused,
            is_final=True,
            back=_page_url(activity),
        )

    # What is shown

    @display(description=_("list of those let in"))
    def show_let_in(self, obj: Activity) -> str:
        return f"{_count(obj, Listed.Verdict.ALLOW):,}"

    @display(description=_("list of those kept out"))
    def show_kept_out(self, obj: Activity) -> str:
        return f"{_count(obj, Listed.Verdict.DENY):,}"

    def _accessible(self, request: HttpRequest, object_id: str) -> Activity:
        activity: Activity | None = self.get_object(request, object_id)
        if not self.has_view_permission(request, activity):
            raise PermissionDenied
        if activity is None:
            raise Http404
        if not request.user.has_perm(access_permission(activity)):
            raise PermissionDenied
        return activity

    def _access_form(self, request: HttpRequest | None, activity: Activity) -> AccessForm:
        sent = request.POST if request is not None and request.method == "POST" else None
        return AccessForm(sent, activity=activity, formfield=partial(self.formfield_for_dbfield, request=request))

    def _page(
        self,
        request: HttpRequest,
        activity: Activity,
        form: AccessForm,
        *,
        upload: tuple[Listed.Verdict, ListedFileForm] | None = None,
    ) -> HttpResponse:
        lists = [
            ListCard(
                slug=(slug := LISTED_NAMES[verdict]),
                title=title,
                explanation=explanation,
                count=_count(activity, verdict),
                form=upload[1] if upload and upload[0] is verdict else ListedFileForm(auto_id=f"id_{slug}_%s"),
                export=reverse(f"admin:activities_activity_{COUNTED[verdict]}", args=[activity.pk]),
            )
            for verdict, (title, explanation) in LISTS.items()
        ]
        return self._render(
            request,
            activity,
            "admin/activity_access.html",
            title=gettext("Access"),
            form=form,
            lists=lists,
            may_change=activity_may(activity=activity, change="access", now=timezone.now()),
            may_export=request.user.has_perm("activities.export_coupon"),
            back=reverse("admin:activities_activity_change", args=[activity.pk]),
        )

    def _render(self, request: HttpRequest, activity: Activity, template: str, **context: Any) -> HttpResponse:
        site = self.admin_site.each_context(request)
        return TemplateResponse(request, template, {**site, "opts": self.opts, "subject": activity, **context})

    def _done(self, request: HttpRequest, activity: Activity, what: str | Promise) -> HttpResponse:
        self.log_change(request, activity, str(what))
        messages.success(request, gettext("Done: %(change)s. It holds within a second.") % {"change": what})
        return self._to_page(activity)

    @staticmethod
    def _to_page(activity: Activity) -> HttpResponseRedirect:
        return HttpResponseRedirect(_page_url(activity))


def _page_url(activity: Activity) -> str:
    return reverse("admin:activities_activity_access", args=[activity.pk])


def _verdict_of(slug: str) -> Listed.Verdict:
    for verdict, name in LISTED_NAMES.items():
        if name == slug:
            return verdict
    raise Http404


def _purpose(request: HttpRequest, activity: Activity, verdict: Listed.Verdict) -> Purpose:
    assert request.user.pk is not None  # of the back office
    return Purpose(activity.pk, verdict, request.user.pk)


def _count(activity: Activity, verdict: Listed.Verdict) -> int:
    return Listed.objects.filter(activity=activity, verdict=verdict).count()
