"""Bucket names and boundaries, worked out from design.md section 1 alone, to hold varvefs against."""
import datetime

_UTC = datetime.timezone.utc
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MONDAY = 4 * 86400  # 1970-01-05 was the first Monday


def seconds_of(length):
    """A length such as "15m" in seconds; weeks and months have none."""
    return int(length[:-1]) * _UNITS[length[-1]]


def _utc(t):
    return datetime.datetime.fromtimestamp(t, _UTC)


def bucket_start(t, length):
    """When the bucket that holds the instant t (seconds since 1970) began."""
    t = int(t // 1)
    if length == "1mo":
        d = _utc(t)
        return int(datetime.datetime(d.year, d.month, 1, tzinfo=_UTC).timestamp())
    if length == "1w":
        return t - (t - _MONDAY) % (7 * 86400)
    return t - t % seconds_of(length)


def next_start(t, length):
    """When the bucket after the one that holds t begins."""
    start = bucket_start(t, length)
    if length == "1mo":
        d = _utc(start)
        y, m = (d.year + 1, 1) if d.month == 12 else (d.year, d.month + 1)
        return int(datetime.datetime(y, m, 1, tzinfo=_UTC).timestamp())
    return start + (7 * 86400 if length == "1w" else seconds_of(length))


def bucket_name(t, length):
    """The name of the bucket that holds t."""
    d = _utc(bucket_start(t, length))
    if length == "1mo":
        return d.strftime("%Y-%m")
    if length == "1w":
        year, week, _ = d.isocalendar()
        return f"{year:04d}-W{week:02d}"
    n = seconds_of(length)
    if n % 86400 == 0:
        return d.strftime("%Y-%m-%d")
    if n % 3600 == 0:
        return d.strftime("%Y-%m-%dT%HZ")
    if n % 60 == 0:
        return d.strftime("%Y-%m-%dT%H%MZ")
    return d.strftime("%Y-%m-%dT%H%M%SZ")
