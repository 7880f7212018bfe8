"""Who may seize an activity's coupons, and how fast: limits, challenge, gray release."""

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

ASKS_MAX = 1000
WINDOW_MAX_S = 300  # the desk remembers a shopper for at least so long
RATE_MAX = 100_000
RAMP_MAX_S = 600
EFFORT_MIN, EFFORT_MAX = 1_000, 1_000_000
LISTED_MAX = 100_000


class Challenge(models.TextChoices):
    """When shoppers have to let their device do some work before they may seize."""

    OFF = "OFF", _("Off")
    PRESSURE = "PRESSURE", _("Under pressure")
    ALWAYS = "ALWAYS", _("Always")


class Audience(models.TextChoices):
    """For whom an activity is."""

    EVERYBODY = "EVERYBODY", _("Shoppers")
    STAFF = "STAFF", _("Staff only")


class AccessTerms(models.Model):
    """The columns of an activity that say who is let in, and how fast. Unlike its terms they may change in a sale."""

    asks_max = models.PositiveSmallIntegerField(
        _("requests per shopper"),
        null=True,
        blank=True,
        default=20,
        validators=[MinValueValidator(1), MaxValueValidator(ASKS_MAX)],
        help_text=_(
            "So often one shopper may ask in vain for a coupon of this activity in the time below, over all devices; "
            "half of it at once. A coupon that is won counts as no request. Empty: no limit."
        ),
    )
    asks_window_s = models.PositiveSmallIntegerField(
        _("… within (seconds)"),
        default=10,
        db_default=10,
        validators=[MinValueValidator(1), MaxValueValidator(WINDOW_MAX_S)],
    )
    rate_max = models.PositiveIntegerField(
        _("coupons per second"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(RATE_MAX)],
        help_text=_(
            "Never more than so many coupons are given out in a second; whoever comes too early asks again by itself. "
            "For systems behind this one that must not be flooded. Empty: no limit."
        ),
    )
    ramp_s = models.PositiveSmallIntegerField(
        _("warm-up (seconds)"),
        default=0,
        db_default=0,
        validators=[MaxValueValidator(RAMP_MAX_S)],
        help_text=_("From the start the rate grows from a tenth to the whole in this time. 0: whole at once."),
    )
    challenge = models.CharField(
        _("challenge"),
        max_length=10,
        choices=Challenge,
        default=Challenge.OFF,
        db_default=Challenge.OFF,
        help_text=_(
            "The shopper’s device computes for a moment before it may seize; shoppers see nothing of it, and for "
            "bots that ask in thousands it is dear. Under pressure: only while more ask than the number below."
        ),
    )
    challenge_effort = models.PositiveIntegerField(
        _("difficulty"),
        default=50_000,
        db_default=50_000,
        validators=[MinValueValidator(EFFORT_MIN), MaxValueValidator(EFFORT_MAX)],
        help_text=_("Hashes at most, on average half: 50,000 take a phone about a second."),
    )
    pressure_min = models.PositiveIntegerField(
        _("pressure (requests per second)"),
        default=500,
        db_default=500,
        validators=[MinValueValidator(1), MaxValueValidator(RATE_MAX)],
    )
    audience = models.CharField(
        _("open to"),
        max_length=10,
        choices=Audience,
        default=Audience.EVERYBODY,
        db_default=Audience.EVERYBODY,
        help_text=_("Staff only: a preview in the live system, for people of the back office."),
    )
    gray_percent = models.PositiveSmallIntegerField(
        _("percent of shoppers"),
        default=100,
        db_default=100,
        validators=[MaxValueValidator(100)],
        help_text=_(
            "A gray release: so many of every hundred shoppers, always the same ones; a higher number adds some and "
            "takes none away. Whoever is on the list of those let in belongs to them in any case, whoever is on the "
            "list of those kept out in none."
        ),
    )
    coming_soon = models.BooleanField(
        _("show as coming soon"),
        default=False,
        db_default=False,
        help_text=_("Those who are not let in see it announced. Otherwise it is hidden from them."),
    )
    listed_version = models.PositiveIntegerField(_("version of the lists"), default=0, editable=False)

    class Meta:
        abstract = True

    @classmethod
    def access_constraints(cls, prefix: str) -> tuple[models.CheckConstraint, ...]:
        """What the database holds the columns to, whoever writes them."""
        return (
            models.CheckConstraint(
                name=f"{prefix}_asks", condition=Q(asks_max=None) | Q(asks_max__gte=1, asks_max__lte=ASKS_MAX)
            ),
            models.CheckConstraint(
                name=f"{prefix}_window", condition=Q(asks_window_s__gte=1, asks_window_s__lte=WINDOW_MAX_S)
            ),
            models.CheckConstraint(
                name=f"{prefix}_rate", condition=Q(rate_max=None) | Q(rate_max__gte=1, rate_max__lte=RATE_MAX)
            ),
            models.CheckConstraint(
                name=f"{prefix}_effort",
                condition=Q(challenge_effort__gte=EFFORT_MIN, challenge_effort__lte=EFFORT_MAX),
            ),
            models.CheckConstraint(name=f"{prefix}_percent", condition=Q(gray_percent__lte=100)),
        )

    def access_clean(self) -> None:
        """What a form should say of columns that only make sense together."""
        if self.ramp_s and self.rate_max is None:
            raise ValidationError({"ramp_s": _("A warm-up needs a number of coupons per second.")})


ACCESS_FIELDS = (
    "asks_max",
    "asks_window_s",
    "rate_max",
    "ramp_s",
    "challenge",
    "challenge_effort",
    "pressure_min",
    "audience",
    "gray_percent",
    "coming_soon",
)


class Listed(models.Model):
    """A shopper whom staff have let in to an activity, or kept out of it, by name."""

    class Verdict(models.TextChoices):
        """Which of the two lists."""

        ALLOW = "ALLOW", _("Let in")
        DENY = "DENY", _("Kept out")

    activity = models.ForeignKey(
        "activities.Activity", models.CASCADE, related_name="listed", verbose_name=_("activity")
    )
    user_id = models.BigIntegerField(_("shopper"))
    verdict = models.CharField(_("list"), max_length=5, choices=Verdict)

    class Meta:
        verbose_name = _("listed shopper")
        verbose_name_plural = _("listed shoppers")
        constraints = (
            models.UniqueConstraint(fields=["activity", "user_id"], name="listed_once"),
            models.CheckConstraint(name="listed_user_positive", condition=Q(user_id__gte=1)),
        )

    def __str__(self) -> str:
        return f"{self.user_id} {self.verdict}"
