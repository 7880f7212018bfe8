"""The environment decides; production starts with real secrets or not at all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from services import PATIENCE_S

SECRET = "a-secret-of-at-least-32-characters-for-sure"
PRODUCTION = {
    "ENVIRONMENT": "production",
    "SECRET_KEY": SECRET,
    "JWT_SIGNING_KEY": SECRET + "-of-tokens",
    "ALLOWED_HOSTS": "shop.example",
}


def settings_load(**env: str) -> subprocess.CompletedProcess[str]:
    """Import the settings in a process of its own with only this environment."""
    code = (
        "from couponsite import settings as s; print(s.CELERY_BROKER_URL, s.CACHES['default']['LOCATION'], s.DATABASES)"
    )
    base = {"PATH": os.environ["PATH"], "ENV_FILE": os.devnull, "VAR_DIR": "/tmp/nowhere-coupons"}
    return python_run(code, {**base, **env})


def python_run(code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE_S)


def test_production_starts_with_its_secrets():
    assert settings_load(**PRODUCTION).returncode == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY"),
        ({"SECRET_KEY": "development-only-secret-that-production-refuses-0123456789abcdef"}, "SECRET_KEY"),
        ({"JWT_SIGNING_KEY": "short"}, "JWT_SIGNING_KEY"),
        ({"ALLOWED_HOSTS": ""}, "ALLOWED_HOSTS"),
        ({"STATIC_HOST": "cdn.example"}, "STATIC_HOST"),
        ({"STATIC_HOST": "https://cdn.example/assets"}, "STATIC_HOST"),
        ({"STATIC_HOST": "https://cdn.example; script-src *"}, "STATIC_HOST"),
        ({"ENVIRONMENT": "prod"}, "ENVIRONMENT"),
        ({"JWT_ALGORITHM": "none"}, "JWT_ALGORITHM"),
        ({"JWT_ALGORITHM": "RS256"}, "JWT_PUBLIC_KEY"),
        ({"DEBUG": "true"}, "DEBUG"),
        ({"DATABASE_URL": "postgres://localhost/x"}, "DATABASE_URL"),
    ],
)
def test_production_refuses_to_start_and_names_what_is_wrong(changes, named):
    loaded = settings_load(**{**PRODUCTION, **changes})
    assert loaded.returncode != 0
    assert named in loaded.stderr.strip().splitlines()[-1]


def test_broker_and_cache_follow_the_redis_url_and_can_be_set_apart():
    loaded = settings_load(REDIS_URL="redis://:p@10.0.0.1:6380/0").stdout
    assert "redis://:p@10.0.0.1:6380/1" in loaded
    assert "redis://:p@10.0.0.1:6380/2" in loaded
    apart = settings_load(
        REDIS_URL="redis://10.0.0.1/0", CELERY_BROKER_URL="redis://10.0.0.2/3", CACHE_URL="redis://10.0.0.3/4"
    ).stdout
    assert "redis://10.0.0.2/3" in apart
    assert "redis://10.0.0.3/4" in apart
    assert "redis+socket:///run/r.sock?virtual_host=1" in settings_load(REDIS_URL="unix:///run/r.sock").stdout


def test_database_url_selects_mariadb_at_read_committed_and_sqlite_is_immediate():
    mysql = settings_load(DATABASE_URL="mariadb://u:p@db/coupons").stdout
    assert "django.db.backends.mysql" in mysql
    assert "read committed" in mysql
    assert "IMMEDIATE" in settings_load(DATABASE_URL="sqlite:////tmp/nowhere-coupons.sqlite3").stdout


def test_options_of_the_database_url_are_kept():
    assert "'ssl_mode': 'REQUIRED'" in settings_load(DATABASE_URL="mysql://u:p@db/coupons?ssl_mode=REQUIRED").stdout


def test_every_line_of_the_example_can_be_uncommented(tmp_path):
    example = (Path(__file__).resolve().parents[2] / ".env.example").read_text()
    lines = [line[1:] for line in example.splitlines() if re.match(r"#[A-Z_]+=.", line)]
    assert len(lines) > 15
    assert [line for line in lines if " #" in line] == []
    (tmp_path / "env").write_text("\n".join(lines))
    loaded = settings_load(ENV_FILE=str(tmp_path / "env"))
    assert loaded.returncode == 0, loaded.stderr


def test_site_that_only_verifies_tokens_has_no_log_in():
    code = (
        "import django; django.setup(); from couponsite.urls import urlpatterns; "
        "print([str(route.pattern) for route in urlpatterns])"
    )
    keys = {"JWT_ALGORITHM": "RS256", "JWT_PUBLIC_KEY": "-----BEGIN PUBLIC KEY-----"}
    env = {"PATH": os.environ["PATH"], "ENV_FILE": os.devnull, "DJANGO_SETTINGS_MODULE": "couponsite.settings", **keys}
    done = python_run(code, env)
    assert "market/consumer/" in done.stdout
    assert "token" not in done.stdout


def test_embedded_redis_is_found_by_its_file(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "redis.url").write_text("redis://:pw@127.0.0.1:4242/0")
    assert "redis://:pw@127.0.0.1:4242/1" in settings_load(VAR_DIR=str(tmp_path)).stdout


def test_grace_after_sigterm_ends_before_the_patience_of_supervisord():
    assert settings_load(STOP_GRACE_S="8").returncode == 0
    refused = settings_load(STOP_GRACE_S="9")
    assert refused.returncode != 0
    assert "STOP_GRACE_S is from 0 to 8 seconds, not 9." in refused.stderr


def test_s26_static_files_may_lie_on_another_host_which_the_pages_policy_names():
    code = (
        "import django; django.setup()\n"
        "from django.test import Client\n"
        "response = Client().get('/login')\n"
        "print(response['Content-Security-Policy']); print(response.content.decode())\n"
    )
    env = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(settings.VAR_DIR),  # with the files as they are published
        "ALLOWED_HOSTS": "testserver",
        "STATIC_HOST": "https://cdn.example/",
        "DJANGO_SETTINGS_MODULE": "couponsite.settings",
    }
    done = python_run(code, env)
    assert done.returncode == 0, done.stderr
    policy, page = done.stdout.split("\n", 1)
    policy += ";"  # its order is another one in each process, so any of them may be the last
    for kind in ("script-src", "style-src", "img-src", "font-src"):
        assert f"{kind} 'self' https://cdn.example;" in policy
    assert "connect-src 'self';" in policy
    assert re.search(r'href="https://cdn\.example/static/centre/centre\.[0-9a-f]{12}\.css"', page)
    # A browser takes a worker from the page's own host alone.
    [solver] = re.findall(r'"/static/[^"]*"', page)
    assert re.fullmatch(r'"/static/centre/solver\.[0-9a-f]{12}\.js"', solver)
