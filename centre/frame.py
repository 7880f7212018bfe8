"""What every page has around it, and the words that scripts put into pages; ``{n}`` and the like they fill in."""

from django.conf import settings
from django.templatetags.static import static
from django.utils.translation import get_language, get_language_info
from django.utils.translation import gettext as _


def frame_of(*, path: str, is_known: bool) -> dict[str, object]:
    """The frame's context.

    :param path: of the page, to come back to after another language was chosen.
    :param is_known: whether somebody has logged in.
    """
    language = get_language() or settings.LANGUAGE_CODE
    return {
        "words": words(),
        "path": path,
        "is_known": is_known,
        "can_log_in": bool(settings.JWT_SIGNING_KEY),
        "language": language,
        "languages": [
            (code, get_language_info(code)["name_local"]) for code, _name in settings.LANGUAGES if code != language
        ],
        "zone": settings.TIME_ZONE,
        # A browser takes a worker from the page's own host alone, wherever the other files lie.
        "solver": static("centre/solver.js").removeprefix(settings.STATIC_HOST),
    }


def words() -> dict[str, str]:
    """By the names that the scripts use."""
    return {
        "seize": _("Seize"),
        "more": _("Seize another"),
        "seizing": _("Seizing…"),
        "again": _("Trying again in {n} s"),
        "later": _("Again in {n} s"),
        "yours": _("Yours"),
        "notStarted": _("Not started"),
        "soldOut": _("Sold out"),
        "ended": _("Ended"),
        "paused": _("Paused"),
        "soon": _("Coming soon"),
        "notOpen": _("Not open to you"),
        "working": _("Your device solves a small puzzle first. Please wait a moment."),
        "logIn": _("Log in to seize"),
        "left": _("{n} left"),
        "from": _("From {moment}"),
        "until": _("Until {moment}"),
        "startsIn": _("Starts in {t}"),
        "endsIn": _("Ends in {t}"),
        "days": _("{n} d {t}"),
        "held": _("You have {n} of {limit}."),
        "won": _("You got it: {name}"),
        "open": _("Open now: {name}"),
        "unsure": _("No answer came. Asking whether it is yours…"),
        "offline": _("The answer never came. Press again: it costs nothing."),
        "busy": _("Many press at once. Nothing is lost; asking again for you."),
        "tooBusy": _("Many press at once. Nothing is lost: please press again."),
        "tooOften": _("You asked very often. Please wait a moment."),
        "moreUp": _("More has come up: show it"),
    }
