"""Where the API server is and who we are there, as the pod or a kubeconfig says it; both can change while we run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from cluster.errors import NotConfigured

Headers = tuple[tuple[str, str], ...]

_TOKEN: Final = "BearerToken"  # noqa: S105 - the library's name for it


class Login(NamedTuple):
    """A configuration for one client, and headers that go with every call; some names stand more than once."""

    configuration: Configuration
    headers: Headers = ()

    @property
    def token(self) -> str:
        """The value of the Authorization header; empty where there is none."""
        return str(self.configuration.api_key.get(_TOKEN, ""))

    def use_token_of(self, other: "Login") -> None:
        """Take over another's token, for calls that are made from now on."""
        self.configuration.api_key.update(other.configuration.api_key)

    def connection(self) -> tuple[object, ...]:
        """All that a connection is made of: when it is another, connections have to be made anew.

        Files count by what is in them, since they are replaced in place. Raises NotConfigured.
        """
        it = self.configuration
        try:
            files = [Path(name).read_bytes() if name else b"" for name in (it.ssl_ca_cert, it.cert_file, it.key_file)]
        except OSError as error:
            raise NotConfigured(f"a CA or a certificate can't be read: {error}") from None
        return (it.host, it.verify_ssl, it.tls_server_name, it.proxy, self.headers, *files)


class Source(Protocol):
    """Reads a login from where it stands."""

    async def __call__(self, *, anew: bool) -> Login:
        """The login; with ``anew`` it owes nothing to what was read before. Raises NotConfigured."""


def in_cluster(
    *,
    token_file: Path = Path(SERVICE_TOKEN_FILENAME),
    ca_file: Path = Path(SERVICE_CERT_FILENAME),
    environ: Mapping[str, str] = os.environ,
) -> Source:
    """The login of a pod: its service account's token, which the kubelet replaces while the pod runs."""

    async def read(*, anew: bool) -> Login:  # noqa: ARG001 - files are always read anew
        configuration = _configuration()
        loader = InClusterConfigLoader(str(token_file), str(ca_file), try_refresh_token=False, environ=dict(environ))
        try:
            loader.load_and_set(configuration)
        except (ConfigException, OSError) as error:
            raise NotConfigured(f"the pod's service account can't be used: {error} ({token_file})") from None
        return _tidy(Login(configuration))

    return read


def from_kubeconfig(paths: str, *, context: str | None) -> Source:
    """The login of a kubeconfig, or of several between colons; its token file or its plugin are asked again."""
    kept: list[tuple[KubeConfigLoader, Headers]] = []

    async def read(*, anew: bool) -> Login:
        configuration = _configuration()
        try:
            if anew or not kept:
                kept[:] = [_loader(paths, context)]
            loader, headers = kept[0]
            await loader.load_and_set(configuration)
        except NotConfigured:
            raise
        except Exception as error:
            # The library lets through whatever a broken file leads it to: a KeyError, an AssertionError, binascii's.
            raise NotConfigured(f"{_found(paths)}: {_described(error)}") from error
        return _tidy(Login(configuration, headers))

    return read


def _loader(paths: str, context: str | None) -> tuple[KubeConfigLoader, Headers]:
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise NotConfigured(f"there is no kubeconfig at {paths}")
    merged = KubeConfigMerger(paths).config
    if merged is None or not isinstance(merged.value, dict):
        raise NotConfigured(f"{_found(paths)}: is no kubeconfig")
    loader = KubeConfigLoader(config_dict=merged, config_base_path=None, active_context=context)
    return loader, _impersonation(merged, loader.current_context or {})


def _impersonation(merged: Any, context: Mapping[str, Any]) -> Headers:
    """The headers of a user's ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra``, which the library leaves out."""
    name = context.get("context", {}).get("user")
    user = merged["users"].get_with_name(name, safe=True) if name else None
    fields = user["user"].value if user is not None and user.safe_get("user") else {}
    headers = [("Impersonate-User", fields.get("as")), ("Impersonate-Uid", fields.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in fields.get("as-groups") or ()]
    headers += [
        (f"Impersonate-Extra-{key}", value)
        for key, values in (fields.get("as-user-extra") or {}).items()
        for value in values
    ]
    return tuple((key, str(value)) for key, value in headers if value)


def _configuration() -> Configuration:
    configuration = Configuration()
    # Python 3.13 asks for extensions that many a cluster's CA lacks, and that kubectl does not ask for.
    configuration.disable_strict_ssl_verification = True
    return configuration


def _tidy(login: Login) -> Login:
    """A token as it can stand in a header: files often end with a line's end."""
    if login.token:
        login.configuration.api_key[_TOKEN] = login.token.strip()
    return login


def _found(paths: str) -> str:
    return f"kubeconfig {paths}"


def _described(error: Exception) -> str:
    if isinstance(error, yaml.YAMLError):
        return "is not YAML: " + " ".join(str(error).split())
    if isinstance(error, ConfigException):
        return " ".join(str(error).removeprefix("Invalid kube-config file. ").split())
    return f"can't be used: {type(error).__name__} {error}".strip()
