"""Keys of the services that redeem coupons: of each only a hash is kept."""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from activities.models.fields import AsciiField


class ApiKey(models.Model):
    """One service's key. It is shown once when it is made; afterwards there is only its hash."""

    class Scope(models.TextChoices):
        READ = "read", _("Read: coupons available, quotes")
        REDEEM = "redeem", _("Redeem and roll back")

    SCOPES: ClassVar = tuple(Scope.values)

    name = models.CharField(_("name"), max_length=100, unique=True, help_text=_("Which service it is for."))
    prefix = AsciiField(_("prefix"), max_length=12, unique=True, editable=False)
    hashed = AsciiField(max_length=64, editable=False)
    scopes = models.JSONField(_("scopes"), default=list)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    created_by = models.CharField(_("created by"), max_length=150, blank=True, editable=False)
    last_used_at = models.DateTimeField(_("last used at"), null=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked at"), null=True, editable=False)
    revoked_by = models.CharField(_("revoked by"), max_length=150, blank=True, editable=False)

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name
