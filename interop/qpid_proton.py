"""The round of README.md by qpid-proton: python3 qpid_proton.py URL"""

import sys
import time
from contextlib import closing

from proton import Condition, Delivery, Message, Timeout
from proton.reactor import Copy
from proton.utils import BlockingConnection

MIB = bytes(i % 251 for i in range(1 << 20))


def check(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, not {want!r}")


class Round:
    steps = ["send", "receive", "outcomes", "redelivery", "request", "large", "drain", "browse", "idle"]

    def __init__(self, connection):
        self.connection = connection

    def send(self):
        self.put("sent", *(f"s-{i}" for i in range(10)))

    def receive(self):
        with closing(self.connection.create_receiver("sent", credit=10)) as receiver:
            for i in range(10):
                message = receiver.receive()
                check("message-id", message.id, f"s-{i}")
                check("body", bytes(message.body), f"body of s-{i}".encode())
                receiver.accept()

    def outcomes(self):
        self.put("outcomes", "accepted", "rejected", "released", "modified")
        with closing(self.connection.create_receiver("outcomes")) as receiver:
            got = {m.id: d for m, d in (self.take(receiver) for _ in range(4))}
            got["rejected"].local.condition = Condition("interop:unwanted", "a description")
            got["modified"].local.failed = True
            for name, state in (("accepted", Delivery.ACCEPTED), ("rejected", Delivery.REJECTED),
                                ("released", Delivery.RELEASED), ("modified", Delivery.MODIFIED)):
                settle(got[name], state)
            counts = {}
            for _ in range(2):
                message, delivery = self.take(receiver)
                counts[message.id] = message.delivery_count
                settle(delivery, Delivery.ACCEPTED)
            check("delivery-counts", counts, {"released": 0, "modified": 1})

    def redelivery(self):
        self.put("redelivered", "r-0")
        with closing(self.connection.create_receiver("redelivered")) as receiver:
            check("message-id", receiver.receive().id, "r-0")
        with closing(self.connection.create_receiver("redelivered")) as receiver:
            check("message-id", receiver.receive().id, "r-0")
            receiver.accept()

    def request(self):
        with closing(self.connection.create_receiver(None, dynamic=True)) as replies:
            address = replies.link.remote_source.address
            with closing(self.connection.create_sender("requests")) as sender:
                sender.send(Message(id="q-0", reply_to=address, body=b"lamp", inferred=True))
            self.answer()
            reply = replies.receive()
            check("reply", bytes(reply.body), b"LAMP")
            check("correlation-id", reply.correlation_id, "q-0")
            replies.accept()

    def answer(self):
        with closing(self.connection.create_receiver("requests")) as requests:
            request = requests.receive()
            answer = Message(correlation_id=request.id, body=bytes(request.body).upper(), inferred=True)
            with closing(self.connection.create_sender(request.reply_to)) as sender:
                sender.send(answer)
            requests.accept()

    def large(self):
        with closing(self.connection.create_sender("large")) as sender:
            sender.send(Message(id="l-0", body=MIB, inferred=True))
        with closing(self.connection.create_receiver("large")) as receiver:
            check("the body came back", bytes(receiver.receive().body) == MIB, True)
            receiver.accept()

    def drain(self):
        self.put("drained", "d-0", "d-1", "d-2")
        with closing(self.connection.create_receiver("drained")) as receiver:
            link = receiver.link
            link.flow(10)
            self.connection.wait(lambda: len(receiver.fetcher.incoming) == 3, msg="three messages")
            check("credit", link.credit, 7)
            for _ in range(3):
                receiver.fetcher.pop()
                receiver.accept()
            link.drain(0)
            self.connection.wait(lambda: link.credit == 0, msg="the drain")
            check("more", receiver.fetcher.has_message, 0)

    def browse(self):
        self.put("browsed", "b-0", "b-1")
        for options in (Copy(), None):
            with closing(self.connection.create_receiver("browsed", credit=2, options=options)) as receiver:
                for i in range(2):
                    check("message-id", receiver.receive().id, f"b-{i}")
                    receiver.accept()

    def idle(self):
        end = time.monotonic() + 4
        try:
            self.connection.wait(lambda: False, timeout=end - time.monotonic())
        except Timeout:
            pass
        check("the whole time", time.monotonic() >= end, True)
        self.put("idle", "i-0")
        with closing(self.connection.create_receiver("idle")) as receiver:
            check("message-id", receiver.receive().id, "i-0")
            receiver.accept()

    def put(self, address, *ids):
        with closing(self.connection.create_sender(address)) as sender:
            for name in ids:
                delivery = sender.send(Message(id=name, body=f"body of {name}".encode(), inferred=True))
                check("the answer", delivery.remote_state, Delivery.ACCEPTED)

    @staticmethod
    def take(receiver):
        message = receiver.receive()
        return message, receiver.fetcher.unsettled.pop()


def settle(delivery, state):
    delivery.update(state)
    delivery.settle()


with closing(BlockingConnection(sys.argv[1], timeout=10, heartbeat=1, allow_insecure_mechs=True)) as connection:
    for step in Round.steps:
        getattr(Round(connection), step)()
        print("ok", step, flush=True)
