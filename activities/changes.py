"""The changes of an activity as the back office offers them: the button, the question, the form, the service."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSplitDateTimeWidget,
    UnfoldAdminTextInputWidget,
)

from activities import drafts, services
from activities.models import Activity
from activities.statuses import UNPUBLISHED


class ConfirmForm(forms.Form):
    """A change without parameters; the others are made from it."""

    def __init__(self, *args: Any, activity: Activity, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.activity = activity
        self.initial.update(expected_total=activity.stock_total, request_id=secrets.token_hex(16))


class AddStockForm(ConfirmForm):
    """How many coupons more than the total that the page showed; the request's number makes a second click harmless."""

    expected_total = forms.IntegerField(widget=forms.HiddenInput)
    request_id = forms.CharField(widget=forms.HiddenInput, max_length=64)
    amount = forms.IntegerField(label=_("Coupons to add"), min_value=1, widget=UnfoldAdminIntegerFieldWidget)


class ChangeEndForm(ConfirmForm):
    """The new end."""

    ends_at = forms.SplitDateTimeField(label=_("New end (exclusive)"), widget=UnfoldAdminSplitDateTimeWidget)


class ReasonForm(ConfirmForm):
    """Why."""

    reason = forms.CharField(label=_("Reason"), max_length=200, widget=UnfoldAdminTextInputWidget)


class VoidForm(ReasonForm):
    """Why, and the name typed once more, since voiding cannot be undone."""

    name = forms.CharField(label=_("Type the activity's name"), widget=UnfoldAdminTextInputWidget)
    field_order = ("name", "reason")

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name != self.activity.name:
            raise forms.ValidationError(gettext("This is not the name of the activity."))
        return name


AUTHOR, APPROVE, OPERATE = (f"activities.{name}_activity" for name in ("change", "approve", "operate"))


def access_permission(activity: Activity) -> str:
    """What one must be allowed to say who is let in: its author's until it is published, then whoever runs it."""
    return AUTHOR if activity.status in UNPUBLISHED else OPERATE


@dataclass(frozen=True, slots=True)
class Change:
    """One legal change: what the button says, what is asked, what is called, who may."""

    label: Promise
    question: Promise
    form: type[ConfirmForm]
    service: Callable[..., Activity]
    arguments: tuple[str, ...] = ()
    permission: str = OPERATE


CHANGES = {
    "submit": Change(
        _("Submit"),
        _("Hand this draft to whoever approves? Its terms are fixed from then on."),
        ConfirmForm,
        drafts.activity_submit,
        permission=AUTHOR,
    ),
    "withdraw": Change(
        _("Withdraw"),
        _("Take it back and make it a draft again? An approval is void then."),
        ConfirmForm,
        drafts.activity_withdraw,
        permission=AUTHOR,
    ),
    "approve": Change(
        _("Approve"),
        _("Agree that this activity goes on offer as it is?"),
        ConfirmForm,
        drafts.activity_approve,
        permission=APPROVE,
    ),
    "reject": Change(
        _("Reject"),
        _("Send it back to its author? It becomes a draft again."),
        ReasonForm,
        drafts.activity_reject,
        ("reason",),
        APPROVE,
    ),
    "publish": Change(
        _("Publish"),
        _("Put this activity on offer? From its start on shoppers can seize."),
        ConfirmForm,
        services.activity_publish,
    ),
    "pause": Change(
        _("Pause"),
        _("Stop seizing at once? It can be resumed."),
        ConfirmForm,
        services.activity_pause,
    ),
    "resume": Change(
        _("Resume"),
        _("Let shoppers seize again?"),
        ConfirmForm,
        services.activity_resume,
    ),
    "add_stock": Change(
        _("Add stock"),
        _("Offer more coupons. Stock can only be added."),
        AddStockForm,
        services.activity_add_stock,
        ("amount", "expected_total", "request_id"),
    ),
    "change_end": Change(
        _("Move the end"),
        _("Let the activity end earlier or later."),
        ChangeEndForm,
        services.activity_change_end,
        ("ends_at",),
    ),
    "void": Change(
        _("Void"),
        _("Withdraw this activity for good? Unused coupons become void. This cannot be undone."),
        VoidForm,
        services.activity_void,
        ("reason",),
    ),
}
