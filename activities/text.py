"""How single values are shown: to people, and to their spreadsheets."""

# What a spreadsheet takes for the beginning of a formula, some only in East Asian editions.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def spreadsheet_safe(text: str) -> str:
    """Text that a spreadsheet shows and does not compute: with an apostrophe in front where it might be a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def shopper_masked(user_id: int) -> str:
    """A shopper's id by its last two digits, by which a caller is recognised."""
    return f"•••{str(user_id)[-2:]}"


def spreadsheet_read(text: str) -> str:
    """What ``spreadsheet_safe`` was given."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text
