"""Apache Qpid Broker-J as a server of a test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_process import PASSWORD, QUEUES, STORE_PASSWORD, TOPICS, USER, Broker, fetched, key_store

VERSION = "9.2.0"
MEMORY = ("-Xms64M", "-Xmx512M", "-XX:MaxDirectMemorySize=512M", "-XX:+UseSerialGC")

# As in Artemis: what a queue cannot deliver goes to DLQ after the third time.
GIVEN_UP = {"maximumDeliveryAttempts": 3, "alternateBinding": {"destination": "DLQ", "attributes": {}}}


def home(require_tool: Callable[[str, str], Path]) -> Path:
    """The folder of the distribution. Errors: BrokerError."""
    name = f"apache-qpid-broker-j-{VERSION}-bin.tar.gz"
    return fetched(
        require_tool, f"org.apache.qpid:apache-qpid-broker-j:{VERSION}:tar.gz:bin", name, f"qpid-broker/{VERSION}"
    )


def _queue(name: str) -> dict[str, Any]:
    return {"name": name, "type": "standard", "durable": True}


def _configuration(port: int, keys: Path | None) -> dict[str, Any]:
    """As the broker makes its own from at its first start.

    keys  a store of its certificate and key: it listens with TLS alone
    """
    host = {
        "type": "BDB",
        "nodeAutoCreationPolicies": [],
        "queues": [_queue("DLQ"), *(_queue(name) | GIVEN_UP for name in QUEUES)],
        "exchanges": [{"name": name, "type": "fanout", "durable": True} for name in TOPICS],
    }
    listens: dict[str, Any] = {
        "name": "amqp",
        "port": str(port),
        "bindingAddress": "127.0.0.1",
        "protocols": ["AMQP_1_0"],
        "authenticationProvider": "plain",
        "virtualhostaliases": [{"name": "any", "type": "patternMatchingAlias", "pattern": ".*"}],
    }
    made: dict[str, Any] = {
        "name": "broker",
        "modelVersion": "9.0",
        "authenticationproviders": [
            {
                "name": "plain",
                "type": "Plain",
                "secureOnlyMechanisms": [],
                "users": [{"name": USER, "type": "managed", "password": PASSWORD}],
            }
        ],
        "ports": [listens],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": "true",
                "virtualHostInitialConfiguration": json.dumps(host),
            }
        ],
    }
    if keys is not None:
        listens |= {"transports": ["SSL"], "keyStore": "keys"}
        store = {"name": "keys", "type": "FileKeyStore", "storeUrl": str(keys), "password": STORE_PASSWORD}
        made["keystores"] = [store | {"keyStoreType": "PKCS12"}]
    return made


class BrokerJ(Broker):
    """Its topics are exchanges."""

    def __init__(
        self, folder: Path, distribution: Path, *, certificate: tuple[str, str] | None = None, name: str = "broker"
    ) -> None:
        """certificate  files of a certificate and its key: it listens with TLS alone"""
        super().__init__(folder, name)
        folder.mkdir(parents=True)
        self._distribution = distribution
        keys = key_store(folder / "keys.p12", *certificate) if certificate is not None else None
        (folder / "first.json").write_text(json.dumps(_configuration(self.port, keys)))

    def command(self) -> list[str]:
        classes = ["-cp", str(self._distribution / "lib" / "*"), "org.apache.qpid.server.Main"]
        return ["java", *MEMORY, f"-Dqpid.work_dir={self.folder}", *classes, "-icp", str(self.folder / "first.json")]

    def is_ready(self) -> bool:
        """It listens before its queues are there."""
        return "BRK-1004 : Qpid Broker Ready" in self.printed()
