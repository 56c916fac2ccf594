"""Where the control plane's programs come from: a folder that is named, or the cache, which is filled when empty."""

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from cached import cache
from controlplane.build import FLAGS, build_into
from controlplane.errors import ControlPlaneError
from controlplane.versions import MODULE

VARIABLE: Final = "KUBEBUILDER_ASSETS"
NAMES: Final = ("kube-apiserver", "kube-controller-manager", "etcd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """The paths of the programs."""

    kube_apiserver: Path
    kube_controller_manager: Path
    etcd: Path
    helm: Path


def assets(env: Mapping[str, str] = os.environ, *, progress: TextIO | None = None) -> Assets:
    """The programs of the folder that KUBEBUILDER_ASSETS names, else those of the cache, which are built when missing.

    helm is the folder's, else the one on PATH, else the cache's. How far a build is goes to ``progress``, stderr unless
    told otherwise. Raises ControlPlaneError: the folder lacks a program, there is no Go, or the build fails.
    """
    if named := env.get(VARIABLE):
        return _of_folder(Path(named), env, progress)
    return _of_cache(env, progress)


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where the built programs are, or will be: another folder for every go.mod, go.sum, flags and platform."""
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts += [" ".join(FLAGS).encode(), sys.platform.encode(), platform.machine().encode()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    return cache(env) / "controlplane" / digest


def is_ready(env: Mapping[str, str] = os.environ) -> bool:
    """Whether ``assets`` has nothing to build."""
    named = env.get(VARIABLE)
    found = _helm(Path(named), env) if named else None
    return bool(found) or cache_folder(env).is_dir()


def _of_folder(folder: Path, env: Mapping[str, str], progress: TextIO | None) -> Assets:
    missing = [name for name in NAMES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise ControlPlaneError(
            f"{VARIABLE} is {folder}, which has no program {' and no '.join(missing)}: name a folder with "
            f"{', '.join(NAMES)}, or unset it to have them built"
        )
    helm = _helm(folder, env) or _of_cache(env, progress).helm
    apiserver, controllers, etcd = (folder / name for name in NAMES)
    return Assets(kube_apiserver=apiserver, kube_controller_manager=controllers, etcd=etcd, helm=helm)


def _helm(folder: Path, env: Mapping[str, str]) -> Path | None:
    found = shutil.which("helm", path=f"{folder}{os.pathsep}{env.get('PATH', '')}")
    return Path(found) if found else None


def _of_cache(env: Mapping[str, str], progress: TextIO | None) -> Assets:
    folder = cache_folder(env)
    if not folder.is_dir():
        build_into(folder, env, progress=progress)
    apiserver, controllers, etcd = (folder / name for name in NAMES)
    return Assets(kube_apiserver=apiserver, kube_controller_manager=controllers, etcd=etcd, helm=folder / "helm")
