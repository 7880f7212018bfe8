"""Measurements; never imported by the product."""
