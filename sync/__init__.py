"""Between Redis and the ledger: drain, rebuild, comparison, dead letters, schedule."""
