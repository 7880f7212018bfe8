"""Instants and validity in the words of the active language, in the site's zone, which is named."""

from datetime import datetime

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _


def moment_text(moment: datetime) -> str:
    """An instant to the second: ``2026-11-11 00:00:00+08:00 (Asia/Shanghai)``."""
    local = timezone.localtime(moment, timezone.get_default_timezone())
    return f"{local.isoformat(sep=' ', timespec='seconds')} ({settings.TIME_ZONE})"


def validity_text(*, valid_until: datetime | None, valid_days: int | None) -> str:
    """For how long a coupon can be used: until an instant, or so many days from its seizing."""
    if valid_until is not None:
        return _("until %(end)s") % {"end": moment_text(valid_until)}
    return _("%(days)s × 24 hours from seizing") % {"days": valid_days}
