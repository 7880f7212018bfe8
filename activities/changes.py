"""The changes of an activity as the back office offers them: the button, the question, the form, the service."""

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

from activities import services
from activities.models import Activity


class ConfirmForm(forms.Form):
    """A change without parameters; the others are made from it."""

    def __init__(self, *args: Any, activity: Activity, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.activity = activity


class AddStockForm(ConfirmForm):
    """How many coupons more."""

    amount = forms.IntegerField(label=_("Coupons to add"), min_value=1, widget=UnfoldAdminIntegerFieldWidget)


class ChangeEndForm(ConfirmForm):
    """The new end."""

    ends_at = forms.SplitDateTimeField(label=_("New end (exclusive)"), widget=UnfoldAdminSplitDateTimeWidget)


class VoidForm(ConfirmForm):
    """Why, and the name typed once more, since voiding cannot be undone."""

    name = forms.CharField(label=_("Type the activity's name"), widget=UnfoldAdminTextInputWidget)
    reason = forms.CharField(label=_("Reason"), max_length=200, widget=UnfoldAdminTextInputWidget)

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name != self.activity.name:
            raise forms.ValidationError(gettext("This is not the name of the activity."))
        return name


@dataclass(frozen=True, slots=True)
class Change:
    """One legal change: what the button says, what is asked, what is called."""

    label: Promise
    question: Promise
    form: type[ConfirmForm]
    service: Callable[..., Activity]
    arguments: tuple[str, ...] = ()


CHANGES = {
    "publish": Change(
        _("Publish"),
        _("Put this activity on offer? Its terms are fixed from then on."),
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
        ("amount",),
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
