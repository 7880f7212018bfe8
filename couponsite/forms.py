"""The back office's log-in."""

from typing import Any

from django.forms import ValidationError
from django.utils.translation import gettext as _
from unfold.forms import AuthenticationForm

from seize.addresses import client_address
from seize.limits import log_in_pace


class StaffLogInForm(AuthenticationForm):
    """Name and password; a client that tries one after the other has to wait."""

    def clean(self) -> dict[str, Any]:
        if log_in_pace(address=client_address(self.request)) is not None:
            raise ValidationError(_("Too many tries. Please wait a moment."))
        cleaned: dict[str, Any] = super().clean()
        return cleaned
