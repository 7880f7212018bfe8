"""What was done, by whom, from where, and why: written once."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from activities.models.append_only import AppendOnly, AppendOnlyQuerySet


class AuditEventQuerySet(AppendOnlyQuerySet):
    """Events, to read and to add to."""


class AuditEvent(AppendOnly):
    """One change, export, decision or key: what it was before and what after.

    ``before`` and ``after`` hold the changed members only. ``request_id`` makes a change that staff may send twice
    happen once. The actor's name is kept as it was, since people leave and are renamed.
    """

    class Action(models.TextChoices):
        DRAFT_CREATE = "draft_create", _("Draft created")
        DRAFT_EDIT = "draft_edit", _("Draft edited")
        DRAFT_DELETE = "draft_delete", _("Draft deleted")
        CLONE = "clone", _("Cloned")
        SUBMIT = "submit", _("Submitted")
        WITHDRAW = "withdraw", _("Withdrawn")
        APPROVE = "approve", _("Approved")
        REJECT = "reject", _("Rejected")
        PUBLISH = "publish", _("Published")
        PAUSE = "pause", _("Paused")
        RESUME = "resume", _("Resumed")
        ADD_STOCK = "add_stock", _("Stock added")
        CHANGE_END = "change_end", _("End moved")
        VOID = "void", _("Voided")
        ACCESS = "access", _("Access changed")
        LISTED = "listed", _("List replaced")
        EXPORT = "export", _("Exported")
        IMPORT = "import", _("Imported")
        LETTER_REPLAY = "letter_replay", _("Dead letter replayed")
        LETTER_DISCARD = "letter_discard", _("Dead letter discarded")
        ROLL_BACK = "roll_back", _("Redemption rolled back")
        KEY_MAKE = "key_make", _("API key made")
        KEY_REVOKE = "key_revoke", _("API key revoked")
        PERMISSIONS = "permissions", _("Permissions changed")

    at = models.DateTimeField(_("at"), db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", verbose_name=_("person")
    )
    actor_name = models.CharField(_("who"), max_length=150)
    address = models.CharField(_("from where"), max_length=45, blank=True)
    action = models.CharField(_("action"), max_length=20, choices=Action)
    subject_type = models.CharField(_("what kind"), max_length=40)
    subject_id = models.CharField(_("id"), max_length=40, blank=True)
    subject_name = models.CharField(_("what"), max_length=200, blank=True)
    before = models.JSONField(_("before"), default=dict, blank=True)
    after = models.JSONField(_("after"), default=dict, blank=True)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    request_id = models.CharField(max_length=64, null=True, unique=True, editable=False)  # noqa: DJ001 - unique, and most have none

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit event")
        verbose_name_plural = _("audit events")
        ordering = ("-id",)
        base_manager_name = "objects"
        indexes = (models.Index(fields=["subject_type", "subject_id", "id"], name="audit_subject"),)

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor_name}: {self.action} {self.subject_name}"
