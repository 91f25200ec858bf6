"""What can be wrong with an archive. Each is a ValueError whose one line says what, where, and what to do."""


class ArchiveError(ValueError):
    """An archive cannot be read."""


class WrongModelError(ArchiveError):
    """The archive was written with another model: other weights or another configuration."""


class WrongConditionsError(ArchiveError):
    """The archive was written with labels or conditioning that were not given, or without those that were."""


class OtherVersionError(ArchiveError):
    """The archive was written in a version of the format that this release does not read."""


class TruncatedError(ArchiveError):
    """The file ends before the archive does."""


class DamagedError(ArchiveError):
    """Bytes of the archive are not those that were written, or were never an archive's."""
