"""The groups author, approver, operator and support; a site may change them afterwards."""

from django.db import migrations

from sync.roles import roles_create


def create(_apps, _schema_editor):
    roles_create()


class Migration(migrations.Migration):
    dependencies = [
        ("sync", "0002_decisions_and_reconciliations"),
        ("activities", "0003_back_office"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]
    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
