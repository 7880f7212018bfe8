"""Ask before a change: a page with a question and perhaps a form, then one domain call, then what came of it."""

from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextInputWidget

from activities.checklist import Item
from activities.contention import ContentionLost


class ReasonForm(forms.Form):
    """Why, for the record."""

    reason = forms.CharField(label=_("Reason"), max_length=200, widget=UnfoldAdminTextInputWidget)


def confirmation_view(
    model_admin: "ModelAdmin[Any]",
    request: HttpRequest,
    *,
    subject: Model,
    label: Promise,
    question: Promise,
    form: forms.Form,
    call: Callable[[dict[str, Any]], object],
    refusal: type[Exception],
    is_final: bool = False,
    checklist: Sequence[Item] = (),
    back: str = "",
) -> HttpResponse:
    """The page, and after a valid POST the call and a redirect to the subject's page with a message.

    :param call: gets the form's cleaned data; ``refusal`` is what it raises for "not now", with the reason.
    :param is_final: cannot be undone, shown in red.
    :param checklist: what to look at before saying yes.
    :param back: where the question was asked from, when that was not the subject's page.
    """
    opts = model_admin.opts
    back = back or reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[subject.pk])
    if request.method == "POST" and form.is_valid():
        try:
            call(form.cleaned_data)
        except refusal as refused:
            messages.error(request, str(refused))
        except ContentionLost:
            messages.error(request, gettext("Somebody else is working on this. Please try again."))
        else:
            model_admin.log_change(request, subject, f"{label} {form.cleaned_data or ''}")
            messages.success(request, gettext("Done: %(change)s. It holds within a second.") % {"change": label})
        return HttpResponseRedirect(back)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": label,
        "opts": opts,
        "subject": subject,
        "question": question,
        "form": form,
        "back": back,
        "is_final": is_final,
        "checklist": checklist,
    }
    return TemplateResponse(request, "admin/change_confirm.html", context)


def confirmation_button(change: str, label: Promise) -> Callable[..., HttpResponse]:
    """A detail button that calls ``change_view_of(request, object_id, change)`` of its ModelAdmin.

    unfold finds it, and its route, by the function's name.
    """

    def button(self: Any, request: HttpRequest, object_id: str) -> HttpResponse:
        response: HttpResponse = self.change_view_of(request, object_id, change)
        return response

    button.__name__ = change
    decorated: Callable[..., HttpResponse] = action(description=label, url_path=change.replace("_", "-"))(button)
    return decorated
