"""Measurements of this product beside its alternatives: ``script/bench``. Never imported by the product."""
