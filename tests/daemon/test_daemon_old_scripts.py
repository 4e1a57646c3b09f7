"""Scripts as operators have them, against a running router: they import the modules of the router we replace.

Management §11.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import ROOT, Daemon
from process_log import PATIENCE_S

pytestmark = pytest.mark.interop


def run_script(text: str, folder: Path, *arguments: str) -> str:
    """What a script prints that succeeds."""
    path = folder / "script.py"
    path.write_text(text)
    # As an installation finds them.
    found = os.pathsep.join(map(str, (ROOT, ROOT / "router" / "compat")))
    ran = subprocess.run(
        [sys.executable, str(path), *arguments],
        env=os.environ | {"PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


LINK_REPORT = """
# Nightly report: who uses which address.
from __future__ import print_function
import sys
from qpid_dispatch.management.client import Node, Url

node = Node.connect(Url(sys.argv[1]), timeout=5)
links = node.query(type='org.apache.qpid.dispatch.router.link', attribute_names=['linkDir', 'owningAddr', 'linkType'])
for link in links.get_dicts():
    if link['linkType'] == 'endpoint' and link['owningAddr']:
        print(link['linkDir'], link['owningAddr'][:6])
for router in node.query(type='org.apache.qpid.dispatch.router').get_entities():
    print(router.id, router.mode)
print(len(node.query(type='org.apache.qpid.dispatch.router.link', count=1).results))
node.close()
"""

OPEN_AND_CLOSE_A_PORT = """
import sys
from qpid_dispatch.management.client import Node
from qpid_dispatch.management.error import NotFoundStatus, BadRequestStatus, ManagementError

LISTENER = 'org.apache.qpid.dispatch.listener'
node = Node.connect(sys.argv[1])
made = node.create({'port': '0', 'host': '127.0.0.1', 'saslMechanisms': 'ANONYMOUS'}, type=LISTENER, name='maintenance')
print(made.name, made['port'], made.attributes['role'])
try:
    node.create({'port': '0'}, type=LISTENER, name='maintenance')
except BadRequestStatus as e:
    print(e.status, 'duplicates' in e.description)
print(node.read(type=LISTENER, name='maintenance').identity)
made.delete()
try:
    node.read(name='maintenance')
except NotFoundStatus as e:
    print(e)
try:
    node.read(type=LISTENER)
except ValueError as e:
    print('ValueError', e)
"""

TURN_UP_THE_LOG = """
import sys
from qpid_dispatch.management.client import Node, Entity

node = Node.connect(sys.argv[1])
log = node.read(type='org.apache.qpid.dispatch.log', name='log/SERVER')
log.enable = 'debug+'
log.update()
print(node.read(identity='log/SERVER').enable)
node.update({'enable': 'default'}, type='log', identity='log/SERVER')
print(log.read().enable)
print(node.get_log(limit=1)[0][0] != '')
print(isinstance(log, Entity), 'log/SERVER' in repr(log))
"""

ASK_THE_NODE = """
import sys
from qpid_dispatch.management.client import Node
from qpid_dispatch.management.error import OK, NotImplementedStatus
from qpid_dispatch_internal.management.qdrouter import QdSchema

node = Node.connect(sys.argv[1])
print(len(node.get_types()) >= 29, len(node.get_attributes()) == len(node.get_operations()), node.get_annotations())
known = QdSchema().dump()['entityTypes']
print(node.get_mgmt_nodes(), all(known[name] == entry for name, entry in node.get_schema()['entityTypes'].items()))
print(list(node.get_types('sslProfile')))
dummy = node.create(type='dummy', name='d1', attributes={'arg1': 'one'})
print(dummy.call('callme', foo='bar')['foo'])
response = node.call(node.request(operation='callme', type='dummy', name='d1', num=2 ** 40), expect=OK)
print(response.body['num'], response.properties['statusCode'])
try:
    node.call(node.node_request(operation='nosuch'))
except NotImplementedStatus as e:
    print(e.status)
node.set_client('_topo/0/wire/$management')
print(node.query(type='router', attribute_names=['id']).results)
print(node.reply_to.startswith('amqp:/_topo/'), node.client.address, node.url)
with Node.connect(sys.argv[1], router='wire') as other:
    print(other.read(type='dummy', name='d1').arg1)
"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (LINK_REPORT, ["out Ltemp.", "in M0$man", "wire standalone", "1"]),
        (
            OPEN_AND_CLOSE_A_PORT,
            [
                "maintenance 0 normal",
                "400 True",
                "listener/127.0.0.1:0:maintenance",
                "No entity with name=maintenance",
                "ValueError name or identity must be given",
            ],
        ),
        (TURN_UP_THE_LOG, ["debug+", "default", "True", "True True"]),
        (
            ASK_THE_NODE,
            [
                "True True {}",
                "[] True",
                "['org.apache.qpid.dispatch.sslProfile']",
                "bar",
                "1099511627776 200",
                "501",
                "[['wire']]",
                "True _topo/0/wire/$management amqp://127.0.0.1:PORT",
                "one",
            ],
        ),
    ],
    ids=["report", "listener", "log", "node"],
)
def test_an_old_script_runs_unchanged(script: str, expected: list[str], router: Daemon, tmp_path: Path) -> None:
    found = run_script(script, tmp_path, f"127.0.0.1:{router.port()}")
    assert found.splitlines() == [line.replace("PORT", str(router.port())) for line in expected]
