"""Keys of services: made here, shown once, revoked by a button."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextInputWidget

from activities.actors import actor_of
from activities.api_keys import ApiKeyRefused, api_key_make, api_key_revoke
from activities.confirmation import confirmation_button, confirmation_view
from activities.models import ApiKey

REVOKE = _("Revoke")


class ApiKeyForm(forms.Form):
    """Which service it is for, and what it may."""

    name = forms.CharField(
        label=_("Name"), max_length=100, help_text=_("Which service it is for."), widget=UnfoldAdminTextInputWidget
    )
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"), choices=ApiKey.Scope.choices, widget=UnfoldAdminCheckboxSelectMultipleWidget
    )


@admin.register(ApiKey)
class ApiKeyAdmin(ModelAdmin):
    """What is known of each key; none is edited or deleted, since the ledger names it."""

    list_display = ("name", "show_state", "prefix", "show_scopes", "created_at", "created_by", "last_used_at")
    fields = ("name", "prefix", "show_scopes", "created_at", "created_by", "last_used_at", "revoked_at", "revoked_by")
    readonly_fields = fields
    search_fields = ("name",)
    show_full_result_count = False
    actions_detail = ("revoke",)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False  # a saved form would write back what a revoke has changed meanwhile

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    @display(description=_("state"), label={"good": "success", "revoked": "danger"})
    def show_state(self, obj: ApiKey) -> tuple[str, str]:
        return ("good", str(_("Good"))) if obj.revoked_at is None else ("revoked", str(_("Revoked")))

    @display(description=_("scopes"))
    def show_scopes(self, obj: ApiKey) -> str:
        return ", ".join(obj.scopes)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask for name and scopes; answer with the key itself, on a page that is not kept anywhere."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ApiKeyForm(request.POST if request.method == "POST" else None)
        context = {
            **self.admin_site.each_context(request),
            "title": _("New API key"),
            "opts": self.opts,
            "back": reverse("admin:activities_apikey_changelist"),
        }
        if form.is_valid():
            try:
                key, text = api_key_make(**form.cleaned_data, by=actor_of(request), now=timezone.now())
            except ApiKeyRefused as refused:
                form.add_error(None, str(refused))
            else:
                self.log_addition(request, key, [{"added": {}}])
                shown = TemplateResponse(request, "admin/api_key_made.html", {**context, "key": key, "text": text})
                shown["Cache-Control"] = "no-store"
                return shown
        question = _("The key is shown once, on the next page. Afterwards nobody can show it again.")
        return TemplateResponse(request, "admin/change_confirm.html", {**context, "question": question, "form": form})

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        key = self.get_object(request, object_id)
        if key is None or key.revoked_at is not None or not request.user.has_perm("activities.change_apikey"):
            return []
        buttons: list[Any] = super().get_actions_detail(request, object_id)
        return buttons

    def change_view_of(self, request: HttpRequest, object_id: str, change: str) -> HttpResponse:
        """Ask, revoke, and say what came of it."""
        if not request.user.has_perm("activities.change_apikey"):
            raise PermissionDenied
        key = self.get_object(request, object_id)
        if key is None:
            raise Http404
        return confirmation_view(
            self,
            request,
            subject=key,
            label=REVOKE,
            question=_("Refuse this key from now on? The service that uses it stops working. This cannot be undone."),
            form=forms.Form(request.POST if request.method == "POST" else None),
            call=lambda _data: api_key_revoke(key_id=key.pk, by=actor_of(request), now=timezone.now()),
            refusal=ApiKeyRefused,
            is_final=True,
        )

    revoke = confirmation_button("revoke", REVOKE)
