"""The admission desk: decides in Redis who gets a coupon. No models, no SQL."""
