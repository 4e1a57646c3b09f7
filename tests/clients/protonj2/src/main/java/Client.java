import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.ErrorCondition;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Modified;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Rejected;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientConnectionRemotelyClosedException;
import org.apache.qpid.protonj2.client.exceptions.ClientLinkRemotelyClosedException;

/** protonj2 as one of the clients of tests/clients; programs.py has the requests and replies. */
public final class Client {
    private static final long LIMIT_S = 20;
    private static final char[] KEY_STORE_PASSWORD = "password".toCharArray(); // nobody else can read the file
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private final org.apache.qpid.protonj2.client.Client container = org.apache.qpid.protonj2.client.Client.create();
    private final Map<String, Peer> peers = new HashMap<>();
    private final Map<String, Sender> senders = new HashMap<>();
    private final Map<String, ArrayDeque<Tracker>> sent = new HashMap<>();
    private final Map<String, Receiver> receivers = new HashMap<>();
    private final Map<String, Delivery> received = new HashMap<>();

    private static final class Peer {
        Connection connection;
        final LinkedBlockingQueue<Exception> closings = new LinkedBlockingQueue<>();
        final CountDownLatch restored = new CountDownLatch(1);
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            Map<String, Object> reply;
            try {
                reply = client.perform(GSON.fromJson(line, JsonObject.class));
            } catch (Exception error) {
                reply = Map.of("error", told(error));
            }
            System.out.println(GSON.toJson(reply));
        }
        System.exit(0);
    }

    private Map<String, Object> perform(JsonObject request) throws Exception {
        String on = text(request, "on");
        switch (text(request, "op")) {
            case "connect":
                return connect(request);
            case "sender":
                return openSender(request);
            case "receiver":
                return openReceiver(request);
            case "credit":
                receivers.get(on).addCredit(request.get("count").getAsInt());
                return Map.of();
            case "drain":
                receivers.get(on).drain().get(LIMIT_S, TimeUnit.SECONDS);
                return Map.of();
            case "send":
                return send(request);
            case "outcome":
                return outcome(sent.get(on).remove());
            case "receive":
                return receive(request);
            case "settle":
                return settle(request);
            case "close":
                peers.get(on).connection.close();
                return Map.of();
            case "closed":
                Exception why = peers.get(on).closings.poll(LIMIT_S, TimeUnit.SECONDS);
                if (why == null) throw new Exception("nothing came in time");
                Map<String, Object> closed = new LinkedHashMap<>();
                closed.put("condition", told(why).get("condition"));
                return closed;
            case "restored":
                if (!peers.get(on).restored.await(LIMIT_S, TimeUnit.SECONDS)) throw new Exception("nothing came in time");
                return Map.of();
            default:
                throw new Exception("no such operation: " + text(request, "op"));
        }
    }

    private Map<String, Object> connect(JsonObject request) throws Exception {
        Peer peer = new Peer();
        ConnectionOptions options = new ConnectionOptions()
            .user(text(request, "user"))
            .password(text(request, "password"))
            .reconnectEnabled(request.get("reconnect").getAsBoolean())
            .disconnectedHandler((connection, event) -> peer.closings.add(event.failureCause()))
            .reconnectedHandler((connection, event) -> peer.restored.countDown());
        options.saslOptions().addAllowedMechanism(text(request, "mechanism"));
        options.sslOptions().sslEnabled(true).sslContextOverride(trusting(text(request, "ca"), text(request, "key_store")));
        peer.connection = container.connect("localhost", request.get("port").getAsInt(), options);
        peer.connection.openFuture().get(LIMIT_S, TimeUnit.SECONDS);
        // A denied client gets Open and Close at once.
        peer.connection.defaultSession().openFuture().get(LIMIT_S, TimeUnit.SECONDS);
        peers.put(text(request, "as"), peer);
        return Map.of();
    }

    /** keyStore  of the client's own certificate, PKCS #12; null for none */
    private static SSLContext trusting(String authority, String keyStore) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (FileInputStream file = new FileInputStream(authority)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        KeyManager[] own = null;
        if (keyStore != null) {
            KeyStore pair = KeyStore.getInstance("PKCS12");
            try (FileInputStream file = new FileInputStream(keyStore)) {
                pair.load(file, KEY_STORE_PASSWORD);
            }
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(pair, KEY_STORE_PASSWORD);
            own = keys.getKeyManagers();
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own, trust.getTrustManagers(), null);
        return context;
    }

    private static DeliveryMode mode(JsonObject request) {
        return "settled".equals(text(request, "mode")) ? DeliveryMode.AT_MOST_ONCE : DeliveryMode.AT_LEAST_ONCE;
    }

    private Map<String, Object> openSender(JsonObject request) throws Exception {
        Connection connection = peers.get(text(request, "on")).connection;
        SenderOptions options = new SenderOptions().deliveryMode(mode(request));
        String address = text(request, "address");
        Sender sender = address == null
            ? connection.openAnonymousSender(options) : connection.openSender(address, options);
        sender.openFuture().get(LIMIT_S, TimeUnit.SECONDS);
        senders.put(text(request, "as"), sender);
        sent.put(text(request, "as"), new ArrayDeque<>());
        return Map.of();
    }

    private Map<String, Object> openReceiver(JsonObject request) throws Exception {
        Connection connection = peers.get(text(request, "on")).connection;
        ReceiverOptions options = new ReceiverOptions().deliveryMode(mode(request)).creditWindow(0).autoAccept(false);
        String address = text(request, "address");
        Receiver receiver = address == null
            ? connection.openDynamicReceiver(options) : connection.openReceiver(address, options);
        receiver.openFuture().get(LIMIT_S, TimeUnit.SECONDS);
        receivers.put(text(request, "as"), receiver);
        return Map.of("address", receiver.address());
    }

    private Map<String, Object> send(JsonObject request) throws Exception {
        byte[] body = new byte[request.get("size").getAsInt()];
        Arrays.fill(body, (byte) 'x');
        Message<byte[]> message = Message.create(body).messageId(text(request, "id"));
        if (text(request, "to") != null) message.to(text(request, "to"));
        if (text(request, "reply_to") != null) message.replyTo(text(request, "reply_to"));
        String on = text(request, "on");
        sent.get(on).add(senders.get(on).send(message));
        return Map.of();
    }

    private static Map<String, Object> outcome(Tracker tracker) throws Exception {
        tracker.settlementFuture().get(LIMIT_S, TimeUnit.SECONDS);
        DeliveryState state = tracker.remoteState();
        if (state == null) return Map.of("outcome", "settled");
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("outcome", state.getType().name().toLowerCase());
        if (state instanceof Modified modified) {
            reply.put("failed", modified.isDeliveryFailed());
            reply.put("elsewhere", modified.isUndeliverableHere());
        }
        if (state instanceof Rejected rejected) {
            reply.put("condition", rejected.getCondition());
            reply.put("description", rejected.getDescription());
        }
        return reply;
    }

    private Map<String, Object> receive(JsonObject request) throws Exception {
        String on = text(request, "on");
        Delivery delivery = receivers.get(on).receive(request.get("limit_ms").getAsLong(), TimeUnit.MILLISECONDS);
        if (delivery == null) throw new Exception("nothing came in time");
        received.put(on, delivery);
        Message<byte[]> message = delivery.message();
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("id", message.messageId());
        reply.put("size", message.body().length);
        reply.put("is_whole", isWhole(message.body()));
        reply.put("reply_to", message.replyTo());
        return reply;
    }

    private static boolean isWhole(byte[] body) {
        for (byte each : body) if (each != 'x') return false;
        return true;
    }

    private Map<String, Object> settle(JsonObject request) throws Exception {
        Delivery delivery = received.get(text(request, "on"));
        switch (text(request, "outcome")) {
            case "accepted" -> delivery.accept();
            case "rejected" -> delivery.reject(text(request, "condition"), text(request, "description"));
            case "released" -> delivery.release();
            default -> delivery.modified(true, true);
        }
        return Map.of();
    }

    private static Map<String, Object> told(Throwable error) {
        Map<String, Object> reply = new LinkedHashMap<>();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            ErrorCondition condition = null;
            if (cause instanceof ClientConnectionRemotelyClosedException closed) condition = closed.getErrorCondition();
            if (cause instanceof ClientLinkRemotelyClosedException closed) condition = closed.getErrorCondition();
            if (condition != null) {
                reply.put("condition", condition.condition());
                reply.put("description", condition.description());
                return reply;
            }
        }
        reply.put("description", String.valueOf(error));
        return reply;
    }

    private static String text(JsonObject request, String name) {
        return request.has(name) && !request.get(name).isJsonNull() ? request.get(name).getAsString() : null;
    }
}
