"""What a coupon is worth: columns that an activity offers and a coupon freezes."""

from decimal import Decimal
from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class DiscountTerms(models.Model):
    """What a coupon is worth; an activity offers it, a coupon freezes it. Money in yuan."""

    class Kind(models.TextChoices):
        FIXED = "FIXED", _("Fixed amount")
        PERCENT = "PERCENT", _("Percentage")

    TERMS: ClassVar = ("kind", "min_spend", "amount_off", "pay_percent", "max_off", "min_payable")

    kind = models.CharField(_("kind"), max_length=8, choices=Kind, default=Kind.FIXED)
    min_spend = models.DecimalField(
        _("minimum spend"),
        max_digits=10,
        decimal_places=2,
        default=Decimal("0.00"),
        validators=[MinValueValidator(Decimal("0.00"))],
        help_text=_("Yuan; 0 = no minimum."),
    )
    amount_off = models.DecimalField(
        _("amount off"),
        max_digits=10,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal("0.01"))],
        help_text=_("Yuan; for a fixed amount."),
    )
    pay_percent = models.PositiveSmallIntegerField(
        _("pay percent"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(99)],
        help_text=_("80 = the shopper pays 80 %; for a percentage."),
    )
    max_off = models.DecimalField(
        _("at most off"),
        max_digits=10,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal("0.01"))],
        help_text=_("Yuan; optional cap of a percentage."),
    )
    min_payable = models.DecimalField(
        _("minimum payable"),
        max_digits=10,
        decimal_places=2,
        default=Decimal("0.00"),
        db_default=Decimal("0.00"),
        validators=[MinValueValidator(Decimal("0.00"))],
        help_text=_("Yuan that stay to be paid, whatever the discount; 0 = an order may become free."),
    )

    class Meta:
        abstract = True

    @staticmethod
    def constraints_for(model: str) -> list[models.CheckConstraint]:
        """The database's own word on terms, named for ``model``.

        A comparison with NULL is unknown, and a CHECK lets the unknown pass: hence each ``isnull``.
        """
        fixed = Q(kind="FIXED", amount_off__isnull=False, amount_off__gt=0, pay_percent=None, max_off=None)
        percent = Q(kind="PERCENT", amount_off=None, pay_percent__isnull=False, pay_percent__gte=1, pay_percent__lte=99)
        return [
            models.CheckConstraint(name=f"{model}_kind_amount", condition=fixed | percent),
            models.CheckConstraint(name=f"{model}_min_spend", condition=Q(min_spend__gte=0)),
            models.CheckConstraint(name=f"{model}_max_off", condition=Q(max_off=None) | Q(max_off__gt=0)),
            models.CheckConstraint(name=f"{model}_min_payable", condition=Q(min_payable__gte=0)),
        ]
