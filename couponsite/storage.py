"""Static files under names that change with what is in them, compressed; modules name one another so as well."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticStorage(CompressedManifestStaticFilesStorage):
    """An ``import`` in a module leads to the very version that it was published with, however long either is kept."""

    support_js_module_import_aggregation = True
