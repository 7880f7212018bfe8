"""The four roles of the back office, as groups: what each may see and do.

A person may have several. Superusers may do everything, but approve their own work.
"""

from collections.abc import Mapping

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission

APPS = ("auth", "activities", "sync", "django_celery_beat")
ROLES: Mapping[str, tuple[str, ...]] = {
    # Makes, submits and clones activities.
    "author": (
        "activities.view_activity",
        "activities.add_activity",
        "activities.change_activity",
        "activities.delete_activity",
    ),
    # Approves or rejects what somebody else submitted.
    "approver": ("activities.view_activity", "activities.approve_activity", "activities.view_auditevent"),
    # Runs sales: publishes, pauses, adds stock, voids; decides about dead letters; gives coupons back; exports.
    "operator": (
        "activities.view_activity",
        "activities.operate_activity",
        "activities.view_coupon",
        "activities.view_personal_data",
        "activities.export_coupon",
        "activities.roll_back_coupon",
        "activities.view_redemption",
        "activities.view_auditevent",
        "sync.view_deadletter",
        "sync.decide_deadletter",
        "sync.view_reconciliation",
        "django_celery_beat.view_periodictask",
    ),
    # Looks up a shopper's coupons by the shopper's id; ids of others are masked.
    "support": ("activities.view_activity", "activities.view_coupon", "activities.view_redemption"),
}


def roles_create() -> dict[str, int]:
    """Make the groups that are missing and give each what it must have; never takes away what a site added.

    Safe to run again. Returns the number of permissions of each role.
    """
    for label in APPS:
        create_permissions(apps.get_app_config(label), verbosity=0)
    for name, wanted in ROLES.items():
        group, _made = Group.objects.get_or_create(name=name)
        group.permissions.add(*[_permission(full_name) for full_name in wanted])
    return {name: len(wanted) for name, wanted in ROLES.items()}


def _permission(full_name: str) -> Permission:
    label, _dot, codename = full_name.partition(".")
    return Permission.objects.get(content_type__app_label=label, codename=codename)
