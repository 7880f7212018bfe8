"""The forms of an activity's access page: limits, challenge, who is let in; and a list of shoppers as a file."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminFileFieldWidget

from activities.access import access_check
from activities.models import ACCESS_FIELDS, Activity

FIELDSETS = (
    (_("Limits"), ("asks_max", "asks_window_s", "rate_max", "ramp_s")),
    (_("Challenge"), ("challenge", "challenge_effort", "pressure_min")),
    (_("Who is let in"), ("audience", "gray_percent", "coming_soon")),
)
# What the model's own texts leave to the field above, which is not always in sight.
HELP_TEXTS = {
    "asks_window_s": _("The time in which a shopper may ask so often; at most 300 seconds."),
    "pressure_min": _(
        "The challenge is asked for while more requests a second than this come for this activity. "
        "It counts only where the challenge is set to: under pressure."
    ),
}


class AccessForm(forms.Form):
    """``ACCESS_FIELDS`` as the page shows them, and the version that it was opened at."""

    expected_version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, activity: Activity, formfield: Callable[..., Any], **kwargs: Any) -> None:
        """:param formfield: makes a form's field of a model's, with the back office's widgets."""
        super().__init__(*args, **kwargs)
        self.fields.update(
            forms.fields_for_model(
                Activity, ACCESS_FIELDS, formfield_callback=formfield, help_texts=HELP_TEXTS  # type: ignore[arg-type]
            )
        )  # fmt: skip
        self.initial.update({name: getattr(activity, name) for name in ACCESS_FIELDS})
        self.initial["expected_version"] = activity.version

    def clean(self) -> dict[str, Any]:
        """Beside its field what the service would say of the page as a whole."""
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            access_check(Activity(**{name: cleaned[name] for name in ACCESS_FIELDS}))
        return cleaned

    @property
    def changed(self) -> dict[str, Any]:
        """The values that are not what the page was opened with."""
        return {name: self.cleaned_data[name] for name in self.changed_data if name in ACCESS_FIELDS}

    def fieldsets(self) -> list[tuple[Any, list[forms.BoundField]]]:
        """The fields in their groups."""
        return [(title, [self[name] for name in names]) for title, names in FIELDSETS]


class ListedFileForm(forms.Form):
    """A CSV of shoppers."""

    file = forms.FileField(
        label=_("Replace it by a CSV"),
        help_text=_("One column of shoppers’ ids, UTF-8, at most 100,000 rows; a heading user_id may be there."),
        widget=UnfoldAdminFileFieldWidget(attrs={"accept": ".csv,text/csv"}),
    )
