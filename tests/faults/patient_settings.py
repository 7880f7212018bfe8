"""The product's settings where nothing that hangs, or is about to end, is given up while a test looks at it."""

from couponsite.settings import *  # noqa: F403
from couponsite.settings import DATABASES, REDIS_TIMEOUT_S

PATIENCE_S = int(REDIS_TIMEOUT_S)  # which the tests' system has made long
DATABASES["default"]["OPTIONS"] |= dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), PATIENCE_S)
STOP_GRACE_S = float(PATIENCE_S)
