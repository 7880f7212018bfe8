"""The project: settings, Celery, URLs, and what belongs to no single app."""

from couponsite.celery import app as celery_app

__all__ = ["celery_app"]
