import java.net.URI;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DistributionMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;

/** The round of README.md by protonj2: java -cp 'JARS/*' Protonj2.java URL */
final class Protonj2 {
    interface Step {
        void run() throws Exception;
    }

    private final Connection connection;

    private Protonj2(Connection connection) {
        this.connection = connection;
    }

    public static void main(String[] args) throws Exception {
        URI url = new URI(args[0]);
        String[] user = url.getUserInfo().split(":");
        ConnectionOptions options = new ConnectionOptions().user(user[0]).password(user[1]).idleTimeout(1000);
        options.requestTimeout(10_000).sendTimeout(10_000);
        try (Client client = Client.create(); Connection connection = client.connect(url.getHost(), url.getPort(), options)) {
            Protonj2 round = new Protonj2(connection);
            step("send", round::send);
            step("receive", round::receive);
            step("outcomes", round::outcomes);
            step("redelivery", round::redelivery);
            step("request", round::request);
            step("large", round::large);
            step("drain", round::drain);
            step("browse", round::browse);
            step("idle", round::idle);
        }
    }

    private static void step(String name, Step step) throws Exception {
        step.run();
        System.out.println("ok " + name);
    }

    private void send() throws Exception {
        String[] ids = new String[10];
        Arrays.setAll(ids, i -> "s-" + i);
        put("sent", ids);
    }

    private void receive() throws Exception {
        try (Receiver receiver = open("sent", 10)) {
            for (int i = 0; i < 10; i++) {
                byte[] body = expect(receiver, "s-" + i);
                check("body", new String(body), "body of s-" + i);
            }
        }
    }

    private void outcomes() throws Exception {
        put("outcomes", "accepted", "rejected", "released", "modified");
        try (Receiver receiver = open("outcomes", 6)) {
            Map<Object, Delivery> got = new HashMap<>();
            for (int i = 0; i < 4; i++) {
                Delivery delivery = next(receiver);
                got.put(delivery.message().messageId(), delivery);
            }
            got.get("accepted").accept();
            got.get("rejected").reject("interop:unwanted", "a description");
            got.get("released").release();
            got.get("modified").modified(true, false);
            Map<Object, Long> counts = new HashMap<>();
            for (int i = 0; i < 2; i++) {
                Delivery delivery = next(receiver);
                counts.put(delivery.message().messageId(), delivery.message().deliveryCount());
                delivery.accept();
            }
            check("delivery-counts", counts, Map.of("released", 0L, "modified", 1L));
        }
    }

    private void redelivery() throws Exception {
        put("redelivered", "r-0");
        try (Receiver receiver = open("redelivered", 1)) {
            check("message-id", next(receiver).message().messageId(), "r-0");
        }
        try (Receiver receiver = open("redelivered", 1)) {
            expect(receiver, "r-0");
        }
    }

    private void request() throws Exception {
        ReceiverOptions options = new ReceiverOptions().creditWindow(0).autoAccept(false);
        try (Receiver replies = connection.openDynamicReceiver(options)) {
            replies.addCredit(1);
            try (Sender sender = connection.openSender("requests")) {
                Message<byte[]> request = Message.create("lamp".getBytes());
                sender.send(request.messageId("q-0").replyTo(replies.address())).awaitAccepted();
            }
            answer();
            Delivery reply = next(replies);
            Message<byte[]> message = reply.message();
            check("reply", new String(message.body()), "LAMP");
            check("correlation-id", message.correlationId(), "q-0");
            reply.accept();
        }
    }

    private void answer() throws Exception {
        try (Receiver requests = open("requests", 1)) {
            Delivery delivery = next(requests);
            Message<byte[]> request = delivery.message();
            Message<byte[]> answer = Message.create(new String(request.body()).toUpperCase().getBytes());
            try (Sender sender = connection.openSender(request.replyTo())) {
                sender.send(answer.correlationId(request.messageId())).awaitAccepted();
            }
            delivery.accept();
        }
    }

    private void large() throws Exception {
        byte[] body = new byte[1 << 20];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i % 251);
        }
        try (Sender sender = connection.openSender("large")) {
            sender.send(Message.create(body).messageId("l-0")).awaitAccepted();
        }
        try (Receiver receiver = open("large", 1)) {
            check("the body came back", Arrays.equals(expect(receiver, "l-0"), body), true);
        }
    }

    private void drain() throws Exception {
        put("drained", "d-0", "d-1", "d-2");
        try (Receiver receiver = open("drained", 10)) {
            for (int i = 0; i < 3; i++) {
                expect(receiver, "d-" + i);
            }
            receiver.drain().get(10, TimeUnit.SECONDS);
            check("more", receiver.queuedDeliveries(), 0L);
            receiver.drain().get(10, TimeUnit.SECONDS); // with no credit left there is nothing to ask for
        }
    }

    private void browse() throws Exception {
        put("browsed", "b-0", "b-1");
        for (DistributionMode mode : new DistributionMode[] {DistributionMode.COPY, DistributionMode.MOVE}) {
            ReceiverOptions options = new ReceiverOptions().creditWindow(0).autoAccept(false);
            options.sourceOptions().distributionMode(mode);
            try (Receiver receiver = connection.openReceiver("browsed", options).addCredit(2)) {
                expect(receiver, "b-0");
                expect(receiver, "b-1");
            }
        }
    }

    private void idle() throws Exception {
        Thread.sleep(4000);
        put("idle", "i-0");
        try (Receiver receiver = open("idle", 1)) {
            expect(receiver, "i-0");
        }
    }

    private void put(String address, String... ids) throws Exception {
        try (Sender sender = connection.openSender(address)) {
            for (String id : ids) {
                sender.send(Message.create(("body of " + id).getBytes()).messageId(id)).awaitAccepted();
            }
        }
    }

    private Receiver open(String address, int credit) throws Exception {
        return connection.openReceiver(address, new ReceiverOptions().creditWindow(0).autoAccept(false)).addCredit(credit);
    }

    private static Delivery next(Receiver receiver) throws Exception {
        Delivery delivery = receiver.receive(10, TimeUnit.SECONDS);
        if (delivery == null) {
            throw new AssertionError("nothing came from " + receiver.address());
        }
        return delivery;
    }

    private static byte[] expect(Receiver receiver, String id) throws Exception {
        Delivery delivery = next(receiver);
        Message<byte[]> message = delivery.message();
        check("message-id", message.messageId(), id);
        byte[] body = message.body();
        delivery.accept();
        return body;
    }

    private static void check(String what, Object got, Object want) {
        if (!want.equals(got)) {
            throw new AssertionError(what + ": " + got + ", not " + want);
        }
    }
}
