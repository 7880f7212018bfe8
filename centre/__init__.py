"""The coupon centre: the pages that shoppers press, in front of the same API as everybody's."""
