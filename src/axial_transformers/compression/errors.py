"""Errors of archives: each is a ValueError of one line that says what is wrong, where, and what to do."""


class ArchiveError(ValueError):
    """An archive cannot be read."""


class WrongModelError(ArchiveError):
    """The archive was written with another model: other weights or another configuration."""


class WrongConditionsError(ArchiveError):
    """The archive was written with labels or conditioning that were not given, or without those that were."""


class OtherVersionError(ArchiveError):
    """The archive has a format version that this release does not read."""


class TruncatedError(ArchiveError):
    """The file ends before the archive does."""


class DamagedError(ArchiveError):
    """Bytes of the archive have changed since it was written, or it is not an archive."""
