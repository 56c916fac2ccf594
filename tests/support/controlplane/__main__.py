"""``make control-plane``: have the programs ready before tests need them; ``--announce`` says if that takes long.

promtool is had with them; without it the tests of the alerts say what to install.
"""

import sys

from controlplane.assets import assets, is_ready
from controlplane.build import HOW_LONG
from controlplane.errors import ControlPlaneError
from promtool import NoPromtoolError, promtool


def main() -> None:
    if "--announce" in sys.argv:
        if not is_ready():
            print(
                f"This first run builds a control plane (kube-apiserver, etcd, helm), which takes {HOW_LONG}; later "
                "runs find it in a cache, and make test-fast leaves out what needs it.",
                flush=True,
            )
        return
    try:
        print(f"The control plane's programs are in {assets().kube_apiserver.parent}")
    except ControlPlaneError as error:
        sys.exit(str(error))
    try:
        print(f"promtool is {promtool()}")
    except NoPromtoolError as error:
        print(error, file=sys.stderr)


main()
