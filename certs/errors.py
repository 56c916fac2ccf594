"""The one exception tree of this package."""


class CertificateError(Exception):
    """A certificate, a key or a request for one is unusable; the message is a sentence that says why."""


class ForeignSecret(CertificateError):
    """The Secret that should hold our authority is somebody else's: it is neither used nor written."""


class NotInstalled(CertificateError):
    """A webhook configuration that is to have the bundle is not there, as while a chart is being installed."""
