"""How pages write times: with their zone, the same in every language."""

DATETIME_FORMAT = "Y-m-d H:i:s O"
SHORT_DATETIME_FORMAT = "Y-m-d H:i O"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
