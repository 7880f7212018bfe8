"""Users and groups under the site's look; who gives whom which permission is written down."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from activities.actors import actor_of
from activities.audit import Action, event_record

admin.site.unregister(User)
admin.site.unregister(Group)


def _names(permissions: Any) -> list[str]:
    pairs = permissions.values_list("content_type__app_label", "codename")
    return sorted(f"{label}.{codename}" for label, codename in pairs)


def _rights(subject: User | Group) -> dict[str, Any]:
    """What a user or group may do, as it is stored."""
    if isinstance(subject, Group):
        return {"permissions": _names(subject.permissions)}
    return {
        "is_active": subject.is_active,
        "is_staff": subject.is_staff,
        "is_superuser": subject.is_superuser,
        "groups": sorted(subject.groups.values_list("name", flat=True)),
        "permissions": _names(subject.user_permissions),
    }


class AuditedAdmin(ModelAdmin):
    """Writes an event when what somebody may do changes."""

    def save_related(self, request: HttpRequest, form: ModelForm, formsets: Any, change: bool) -> None:
        stored = self.model.objects.filter(pk=form.instance.pk).first()  # groups and permissions still as they were
        before = {**_rights(stored), **self._flags_before(form)} if change and stored else {}
        super().save_related(request, form, formsets, change)
        after = _rights(self.model.objects.get(pk=form.instance.pk))
        changed = [name for name in after if before.get(name) != after[name]]
        if changed:
            self._record(request, form.instance, {n: before.get(n) for n in changed}, {n: after[n] for n in changed})

    @staticmethod
    def _flags_before(form: ModelForm) -> dict[str, Any]:
        flags = ("is_active", "is_staff", "is_superuser")  # saved already; the form remembers what they were
        return {name: form.initial[name] for name in flags if name in form.initial}

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self._record(request, obj, _rights(obj), {})
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for obj in queryset:
            self._record(request, obj, _rights(obj), {})
        super().delete_queryset(request, queryset)

    @staticmethod
    def _record(request: HttpRequest, subject: Any, before: dict[str, Any], after: dict[str, Any]) -> None:
        event_record(
            action=Action.PERMISSIONS,
            subject=subject,
            by=actor_of(request),
            now=timezone.now(),
            before=before,
            after=after,
        )


@admin.register(User)
class UserAdmin(DjangoUserAdmin, AuditedAdmin):
    """People who log in."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, AuditedAdmin):
    """What a group of people may do."""
