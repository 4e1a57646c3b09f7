"""messageLoggingComponents: one line per message and direction (routing 132, management 33)."""

import proton
import pytest
from memory_net import Net

from router.amqp.message_text import chosen_components, message_text, value_text
from router.values import symbol, timestamp


def test_components_are_logged_as_in_the_specification() -> None:
    """management 33: the example of §4.6, received and sent."""
    net = Net(message_components=chosen_components("subject,user-id,reply-to"))
    net.client().receiver("hello_world", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender("hello_world")
    net.pump()
    sender.send(b"x", user_id=b"testuser", subject="test-subject", reply_to="hello_world")
    net.pump()
    lines = net.log_texts("MESSAGE")
    expected = 'Message{user-id=b"testuser", subject="test-subject", reply-to="hello_world"}'
    assert len(lines) == 2
    assert lines[0].startswith(f"[C2]: Received {expected} on link ")
    assert lines[1].startswith(f"[C1]: Sent {expected} on link ")


def test_messages_without_the_components_are_logged_too() -> None:
    """routing §26: always printed."""
    net = Net(message_components=chosen_components("to,subject"))
    net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender(None)
    net.pump()
    sender.send(b"x", address="a")
    net.pump()
    assert [line for line in net.log_texts("MESSAGE") if 'Received Message{to="a"} on link' in line]


def test_a_streamed_message_is_logged_once() -> None:
    """routing 132: though only its first part is there."""
    net = Net(message_components=("subject",))
    receiver = net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    sender.send(b"x" * 400_000, subject="long")
    net.pump()
    assert len(receiver.complete) == 1
    assert [line.count('subject="long"') for line in net.log_texts("MESSAGE")] == [1, 1]


def test_unlogged_connections_log_nothing() -> None:
    net = Net()
    net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    sender.send(b"x", subject="s")
    net.pump()
    assert net.log_texts("MESSAGE") == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "T"),
        (False, "F"),
        (7, "7"),
        ("x", '"x"'),
        (symbol("x"), ':"x"'),
        (b"a\x00\xff", 'b"a\\00\\ff"'),
        ([1, "a"], '[1, "a"]'),
        ({"k": 1, "l": [True]}, '{"k"=1, "l"=[T]}'),
        (timestamp(10**18), str(10**18)),
    ],
)
def test_values_are_written_as_specified(value: object, text: str) -> None:
    """management §4.6."""
    assert value_text(value) == text


def test_words_are_chosen_in_printing_order() -> None:
    """management §4.6: unknown words are ignored."""
    assert chosen_components("none") == ()
    assert chosen_components("app-properties,nonsense,to") == ("to", "app-properties")
    assert len(chosen_components("all")) == 14


def test_all_components_of_a_full_message() -> None:
    message = proton.Message(address="a", subject="s", properties={"n": 1}, correlation_id="c", body="b")
    text = message_text(message.encode(), chosen_components("all"))
    assert text == 'Message{to="a", subject="s", correlation-id="c", app-properties={"n"=1}}'


def test_garbage_is_named() -> None:
    assert message_text(b"\x00\x53\x73\xc0", ("to",)) == "malformed message"
