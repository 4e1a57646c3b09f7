"""Attack: a service keeps the reply-to of a request, or a link to it, and sends to it long after."""

from pathlib import Path

from daemon_process import eventually
from proton import Delivery, Message
from reply_house import TIMEOUT_S, arrives, ask, dynamic_receiver, house, put, refusal, rejection

WINDOW_S = 2


def test_the_service_goes_on_when_the_window_is_over(tmp_path: Path) -> None:
    with house(tmp_path, {"services": {"replyWindow": WINDOW_S}}) as made:
        service, alice = made.connect("service"), made.connect("alice")
        requests = service.create_receiver("requests", credit=10)
        replies, address = dynamic_receiver(alice)
        ask(alice, requests, address)
        sender = service.create_sender(address)
        put(service, sender, Message(body="in time"))
        assert replies.receive(TIMEOUT_S).body == "in time"
        assert arrives(service, address, replies)
        # From then on, by every way: a message, one on the link that was attached in time, another link.
        assert eventually(lambda: rejection(service, address, WINDOW_S / 4) is not None)
        late = sender.link.send(Message(body="late"))
        assert isinstance(late, Delivery)
        service.wait(lambda: late.settled)
        assert late.remote_state == Delivery.REJECTED
        assert late.remote.condition is not None
        assert late.remote.condition.name == "amqp:unauthorized-access"
        assert refusal(lambda: service.create_sender(address, name="another")).name == "amqp:unauthorized-access"
        for stage in ("transfer", "attach"):
            event = made.event(stage=stage, reason="reply_window_over", user="service")
            assert event["rule"]["item"] == f"replyWindow: {WINDOW_S}"
            assert event["asked"]["dynamic_address"] == "other"
            assert event["asked"]["reply_age_ms"] >= WINDOW_S * 1000
        # A new request, a new window.
        ask(alice, requests, address)
        assert rejection(service, address, WINDOW_S / 4) is None


def test_an_answer_to_a_question_nobody_asked(tmp_path: Path) -> None:
    """The service knows the address, from a log or from before it connected anew, and has no request with it."""
    with house(tmp_path) as made:
        alice, service = made.connect("alice"), made.connect("service")
        requests = service.create_receiver("requests", credit=10)
        replies, address = dynamic_receiver(alice)
        assert rejection(service, address) is not None
        ask(alice, requests, address)
        assert arrives(service, address, replies)
        other = made.connect("service")
        assert refusal(lambda: other.create_sender(address)).name == "amqp:unauthorized-access"
        event = made.event(stage="attach", reason="reply_not_expected")
        assert (event["user"], event["rule"]["item"]) == ("service", "allowReplies: true")
