"""What can be wrong with a data set."""


class DataError(Exception):
    """The data set cannot be used; the message says why and what to do."""


class DataMissing(DataError):
    """It is not in the data folder; the message says where it was looked for and what fetches it."""


class DataDamaged(DataError):
    """A file is not what its format promises; the message names the file and the difference."""


class DataTooLarge(DataError):
    """It would not fit into memory."""
