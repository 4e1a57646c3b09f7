"""Configuration texts that several tests read."""

from hypothesis import strategies as st

OLD_BOOK_GROUPS = """\
vhost {
    hostname: "example.com"
    groups: {
        admin: {
            users: alice, bob
            remoteHosts: 127.0.0.1, ::1
            sources: *
        },
        $default: {\x20
            remoteHosts: *   # anywhere
            allowDynamicSource: true,
            targets: ${user}.*, {user}
            sourcePattern: a.#, #
        }
    }
}
"""

FRAGMENTS = st.sampled_from(
    [
        *('"', "{", "}", "[", "]", ":", ",", "#", "\\", "\n", "\r\n", " ", "\t", "groups: {\n", "openProperties: {\n"),
        *("listener {\n", "a: b\n", '"a": 1', "hostname: x#y", "${user}", "{user}", "\\u12", "é", "\x00", "\ud800"),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(FRAGMENTS).map("".join))
