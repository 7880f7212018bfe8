"""Activities and coupons: the ledger, its rules, the back office, and the shopper's wallet."""
