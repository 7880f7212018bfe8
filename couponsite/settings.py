"""All settings, from the environment only (and from ``.env`` for what the environment leaves out).

Without any setting this is a development site on embedded servers: SQLite under ``var/`` and the
Valkey that ``script/server`` runs. ``.env.example`` lists every variable.
"""

import os
import re
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import environ
from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from couponsite import sidebar

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()
ENV_FILE = Path(os.environ.get("ENV_FILE") or BASE_DIR / ".env")
if ENV_FILE.is_file():
    environ.Env.read_env(ENV_FILE)
VAR_DIR = Path(os.environ.get("VAR_DIR") or BASE_DIR / "var").resolve()

# -- Development or production --------------------------------------------------------------------

ENVIRONMENT = env("ENVIRONMENT", default="development")
if ENVIRONMENT not in ("development", "production"):
    raise ImproperlyConfigured(f"ENVIRONMENT is 'development' or 'production', not {ENVIRONMENT!r}.")
DEVELOPMENT = ENVIRONMENT == "development"
DEBUG = env.bool("DEBUG", default=False)
if DEBUG and not DEVELOPMENT:
    raise ImproperlyConfigured("DEBUG shows secrets to visitors: not in production.")

DEVELOPMENT_SECRET = "development-only-secret-that-production-refuses-0123456789abcdef"  # noqa: S105 - refused in production


def secret_read(name: str, *, default: str = DEVELOPMENT_SECRET) -> str:
    """One secret from the environment; in production it must be there, long, and not the development one."""
    value = str(env(name, default=default))
    if not DEVELOPMENT and (len(value) < 32 or "development-only" in value):
        raise ImproperlyConfigured(
            f"{name} must be a secret of at least 32 characters in production; make one with "
            "python3 -c 'import secrets; print(secrets.token_urlsafe(48))'."
        )
    return value


def limit_read(name: str, *, default: str) -> str:
    """A limit, ``requests/seconds`` or '' for none."""
    value = str(env(name, default=default))
    number, _slash, seconds = value.partition("/")
    whole = number.isdecimal() and seconds.isdecimal() and 1 <= int(number) <= 10_000_000 and 1 <= int(seconds) <= 3600
    if value and not whole:
        raise ImproperlyConfigured(f"{name} must be requests/seconds such as 30/10, or empty, not {value!r}.")
    return value


SECRET_KEY = secret_read("SECRET_KEY")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"] if DEVELOPMENT else [])
if not DEVELOPMENT and not ALLOWED_HOSTS:
    raise ImproperlyConfigured("ALLOWED_HOSTS must name the site's hosts in production, separated by commas.")
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
CSRF_FAILURE_VIEW = "centre.entry.form_refused"

# -- Application ----------------------------------------------------------------------------------

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "unfold.contrib.import_export",  # its templates before those of import_export
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_celery_beat",
    "import_export",
    "couponsite",
    "sync",
    "activities",
    "seize",
]
MIDDLEWARE = [
    "couponsite.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "couponsite.middleware.PagePolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "couponsite.urls"
WSGI_APPLICATION = "couponsite.wsgi.application"
APPEND_SLASH = False
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_500_000
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

# -- Language and time ----------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
FORMAT_MODULE_PATH = ["couponsite.formats"]
USE_TZ = True
TIME_ZONE = env("TIME_ZONE", default="Asia/Shanghai")

# -- Static files ---------------------------------------------------------------------------------

STATIC_HOST = env("STATIC_HOST", default="").rstrip("/")  # S26: a CDN in front of /static/, off by default
if STATIC_HOST and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+", STATIC_HOST):
    raise ImproperlyConfigured(f"STATIC_HOST is a scheme and a host such as https://cdn.example, not {STATIC_HOST!r}.")
STATIC_URL = f"{STATIC_HOST}/static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "couponsite.storage.StaticStorage"},
}
WHITENOISE_MANIFEST_STRICT = False

# What a page may load and do: its own, and what lies behind STATIC_HOST; no inline script, no other host.
_OWN = [SELF, *([STATIC_HOST] if STATIC_HOST else [])]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": _OWN,
        "style-src": _OWN,
        "img-src": _OWN,
        "font-src": _OWN,
        "connect-src": [SELF],
        "worker-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
# The back office's theme writes scripts and styles into its pages. (The API's documentation: couponsite/docs.py.)
OFFICE_POLICY = {
    "script-src": [*_OWN, UNSAFE_INLINE, UNSAFE_EVAL],
    "style-src": [*_OWN, UNSAFE_INLINE],
    "img-src": [*_OWN, "data:"],
}

# -- The ledger: MySQL or MariaDB by DATABASE_URL, else SQLite under var/ ---------------------------


def database_read() -> dict[str, Any]:
    """The default database with the options that the ledger relies on."""
    url = env("DATABASE_URL", default="")
    if url.startswith("mariadb://"):
        url = "mysql://" + url.removeprefix("mariadb://")
    config = dict(env.db_url_config(url or f"sqlite:///{VAR_DIR / 'db.sqlite3'}"))
    if config["ENGINE"] == "django.db.backends.sqlite3":
        if not url:
            VAR_DIR.mkdir(parents=True, exist_ok=True)
        config["OPTIONS"] = {
            **config.get("OPTIONS", {}),
            "timeout": 20,
            # A transaction that reads first and locks later loses to "database is locked".
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        }
    elif config["ENGINE"] == "django.db.backends.mysql":
        config["CONN_MAX_AGE"] = env.int("DATABASE_CONN_MAX_AGE", default=60)
        config["CONN_HEALTH_CHECKS"] = True
        config["OPTIONS"] = {
            **config.get("OPTIONS", {}),  # what the URL says, such as ?ssl_mode=REQUIRED
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            "connect_timeout": 5,
            "read_timeout": 30,
            "write_timeout": 30,
            # A stopped worker must not keep the lock on an activity's row for long.
            "init_command": "SET SESSION sql_mode='STRICT_TRANS_TABLES', "
            f"innodb_lock_wait_timeout={env.int('DATABASE_LOCK_WAIT_S', default=2)}, "
            f"wait_timeout={env.int('DATABASE_WAIT_TIMEOUT_S', default=120)}",
        }
    else:
        raise ImproperlyConfigured("DATABASE_URL is mysql://…, mariadb://… or sqlite:///….")
    return config


DATABASES = {"default": database_read()}

# -- Redis: one for seizing, one for the broker, one for caches -------------------------------------


def redis_embedded_url() -> str:
    """The URL that ``script/server`` left for other terminals, or nothing."""
    path = VAR_DIR / "run" / "redis.url"
    return path.read_text().strip() if path.is_file() else ""


def redis_sibling(url: str, *, database: int) -> str:
    """The same server with another database number; a socket's number is a query parameter."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"{url.split('?', maxsplit=1)[0]}?db={database}"
    return urlunsplit(parts._replace(path=f"/{database}"))


REDIS_URL = env("REDIS_URL", default="") or redis_embedded_url()
if REDIS_URL.startswith(("redis+cluster://", "redis+sentinel://")):
    # Neither Celery nor the cache can live on a cluster, and they know no Sentinel URL of this form.
    for name in ("CELERY_BROKER_URL", "CACHE_URL"):
        if not env(name, default=""):
            raise ImproperlyConfigured(f"REDIS_URL names several servers: set {name} to a single Redis.")
REDIS_TIMEOUT_S = env.float("REDIS_TIMEOUT_S", default=1.0)
REDIS_CONNECT_TIMEOUT_S = env.float("REDIS_CONNECT_TIMEOUT_S", default=1.0)
REDIS_POOL_SIZE = env.int("REDIS_POOL_SIZE", default=64)

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": env("CACHE_URL", default="") or redis_sibling(REDIS_URL or "redis://127.0.0.1:1/0", database=2),
        # What is cached may be lost: a cache that is away is an empty one, and says so in the log.
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 1, "SOCKET_TIMEOUT": 1, "IGNORE_EXCEPTIONS": True},
    }
}
DJANGO_REDIS_LOG_IGNORED_EXCEPTIONS = True

# -- Celery ---------------------------------------------------------------------------------------

CELERY_BROKER_URL = env("CELERY_BROKER_URL", default="") or redis_sibling(
    REDIS_URL or "redis://127.0.0.1:1/0", database=1
).replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")
CELERY_TIMEZONE = TIME_ZONE
CELERY_ENABLE_UTC = True
CELERY_TASK_IGNORE_RESULT = True  # Flower reads results from events; nobody else asks for them
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 60  # Celery's 4 s ends the processes of a busy machine before they are up
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_SOFT_TIME_LIMIT = 50
CELERY_TASK_ANNOTATIONS = {
    name: {"time_limit": 80, "soft_time_limit": 75} for name in ("sync.rebuild_activity", "sync.reconcile")
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # A worker that was killed gives its message back after this; longer than any task may run.
    "visibility_timeout": 90,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    # Without these a publisher hangs on a dead broker.
    "socket_timeout": 10,
    "socket_connect_timeout": 2,
    "retry_on_timeout": False,
}
CELERY_BEAT_SCHEDULER = "sync.beat:SingleBeatScheduler"
CELERY_BEAT_SYNC_EVERY = 1
CELERY_BEAT_MAX_LOOP_INTERVAL = 1

# -- The web server: the gate in front of Django, and Django's threads behind it --------------------------

SEIZE_GATE = env.bool("SEIZE_GATE", default=True)
SEIZE_GATE_THREADS = env.int("SEIZE_GATE_THREADS", default=8)
SEIZE_GATE_WAITING_MAX = env.int("SEIZE_GATE_WAITING_MAX", default=2048)
SEIZE_COUNTS = env.bool("SEIZE_COUNTS", default=True)  # wins and refusals for the live page and the report
# Limits as requests/seconds, '' for none; each process keeps them by itself, see docs/admission.md
LIMIT_SHOPPER = limit_read("LIMIT_SHOPPER", default="10/10")
LIMIT_ADDRESS = limit_read("LIMIT_ADDRESS", default="1000/10")
LIMIT_SITE = limit_read("LIMIT_SITE", default="")
LIMIT_LOG_IN = limit_read("LIMIT_LOG_IN", default="20/60")
WEB_WORKERS = env.int("WEB_WORKERS", default=2)
WEB_THREADS = env.int("WEB_THREADS", default=8)
WEB_WAITING_MAX = env.int("WEB_WAITING_MAX", default=256)
WEB_BODY_MAX_BYTES = env.int("WEB_BODY_MAX_BYTES", default=5_000_000)
WEB_BODY_TIMEOUT_S = env.float("WEB_BODY_TIMEOUT_S", default=20.0)

# -- Health: who may read /metrics; in production nobody without the token ------------------------------

METRICS_TOKEN = env("METRICS_TOKEN", default="")
STOP_GRACE_S = env.float("STOP_GRACE_S", default=0.0 if DEVELOPMENT else 3.0)
# With ten seconds for what is under way and ten for a process that hangs it must end before supervisord's patience.
if not 0 <= STOP_GRACE_S <= 8:
    raise ImproperlyConfigured(f"STOP_GRACE_S is from 0 to 8 seconds, not {STOP_GRACE_S:g}.")

# -- Sync -----------------------------------------------------------------------------------------

SYNC_BATCH_SIZE = env.int("SYNC_BATCH_SIZE", default=2000)
SYNC_LEASE_MS = 5_000
SYNC_DRAIN_SECONDS = 2
PREHEAT_DAYS = 31  # S15: running, or starting within one month
LIST_ENDED_DAYS = 7
SELF_APPROVAL = env.bool("SELF_APPROVAL", default=False)  # one person may make, submit and approve an activity
LIST_CACHE_S = env.float("LIST_CACHE_S", default=1.0)

# -- API ------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["seize.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["seize.parsers.SmallJsonParser"],
    "DEFAULT_SCHEMA_CLASS": "couponsite.schema.Operation",
    "EXCEPTION_HANDLER": "couponsite.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "TITLE": "Coupon seizing",
    "VERSION": "1",
    "DEFAULT_GENERATOR_CLASS": "couponsite.schema.Generator",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "couponsite.schema.document_complete",
    ],
    "ENUM_NAME_OVERRIDES": {
        "ActivityStatus": "activities.shapes.ACTIVITY_STATUSES",
        "CouponStatus": "activities.shapes.COUPON_STATUSES",
        "CouponState": "activities.shapes.COUPON_STATES",
        "ClaimState": "sync.shapes.CLAIM_STATES",
        "DiscountKind": "activities.shapes.KINDS",
        "SeizedState": "seize.shapes.SEIZED_STATES",
        "UnusableReason": "activities.checkout_shapes.UNUSABLE",
        "RestoredStatus": "activities.checkout_shapes.RESTORED",
    },
    "ENUM_SUFFIX": "",
    "SORT_OPERATION_PARAMETERS": False,
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    # Without a null here the page would send the document's address to a validator on the internet.
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "displayRequestDuration": True, "validatorUrl": None},
}
JWT_ALGORITHM = env("JWT_ALGORITHM", default="HS256")
if JWT_ALGORITHM == "HS256":
    JWT_SIGNING_KEY = JWT_VERIFYING_KEY = secret_read("JWT_SIGNING_KEY", default=SECRET_KEY)
elif JWT_ALGORITHM == "RS256":
    # Keys are PEM text; a site that only verifies tokens of another issuer leaves out the private one.
    JWT_SIGNING_KEY = str(env("JWT_PRIVATE_KEY", default="")).replace("\\n", "\n")
    JWT_VERIFYING_KEY = str(env("JWT_PUBLIC_KEY", default="")).replace("\\n", "\n")
    if not JWT_VERIFYING_KEY:
        raise ImproperlyConfigured("JWT_ALGORITHM=RS256 needs JWT_PUBLIC_KEY (PEM).")
else:
    raise ImproperlyConfigured(f"JWT_ALGORITHM is HS256 or RS256, not {JWT_ALGORITHM!r}.")
JWT_ISSUER = env("JWT_ISSUER", default="") or None
JWT_AUDIENCE = env("JWT_AUDIENCE", default="") or None
JWT_LEEWAY_S = 30
ACCESS_TOKEN_LIFETIME_S = env.int("ACCESS_TOKEN_LIFETIME_S", default=3600)
SHOPPER_SESSION_S = env.int("SHOPPER_SESSION_S", default=12 * 3600)  # of the coupon centre's log-in
SIMPLE_JWT = {
    "ALGORITHM": JWT_ALGORITHM,
    "SIGNING_KEY": JWT_SIGNING_KEY,
    "VERIFYING_KEY": JWT_VERIFYING_KEY if JWT_ALGORITHM == "RS256" else "",
    "ISSUER": JWT_ISSUER,
    "AUDIENCE": JWT_AUDIENCE,
    "LEEWAY": JWT_LEEWAY_S,
    "ACCESS_TOKEN_LIFETIME": timedelta(seconds=ACCESS_TOKEN_LIFETIME_S),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=14),
}

# -- Transport security ---------------------------------------------------------------------------

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
BEHIND_PROXY = env.bool("BEHIND_PROXY", default=False)  # whose X-Forwarded-Proto and X-Forwarded-For are believed
TRUSTED_PROXIES = env.list("TRUSTED_PROXIES", default=[])  # only these, where there are several or others connect, too
try:
    for network in TRUSTED_PROXIES:
        ip_network(network)
except ValueError as error:
    raise ImproperlyConfigured(f"TRUSTED_PROXIES must name addresses or networks: {error}.") from error
if not DEVELOPMENT:
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=True)
    SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|metrics)$"]  # probes come without TLS from inside
    SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=3600)
    if BEHIND_PROXY:
        SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# -- Logging --------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "filters": {
        "unexpected": {"()": "couponsite.logs.Unexpected"},
        "one_line": {"()": "couponsite.logs.OneLine"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env("LOG_LEVEL", default="INFO")},
    "loggers": {
        "flower": {"level": "ERROR"},
        "kombu.mixins": {"level": "WARNING"},
        "django.request": {"filters": ["unexpected"]},
        "django_redis.cache": {"filters": ["one_line"]},
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
    },
}

# -- Back office ----------------------------------------------------------------------------------

# Where a log-in leads that was not sent from a page: only staff log in by a form of Django's.
LOGIN_REDIRECT_URL = "admin:index"

UNFOLD = sidebar.UNFOLD
