import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.JmsDestination;
import org.apache.qpid.jms.JmsSession;
import org.apache.qpid.jms.policy.JmsDefaultPrefetchPolicy;
import org.apache.qpid.jms.policy.JmsPresettlePolicy;
import org.apache.qpid.jms.provider.exceptions.ProviderDeliveryModifiedException;
import org.apache.qpid.jms.provider.exceptions.ProviderDeliveryReleasedException;

/**
 * Qpid JMS as one of the clients of tests/clients; programs.py has the requests and replies.
 *
 * Nothing is prefetched: each receive grants a credit and drains it when nothing came.
 */
public final class Client {
    private static final long LIMIT_S = 20;
    private static final char[] KEY_STORE_PASSWORD = "password".toCharArray(); // nobody else can read the file
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101; // of Qpid JMS
    private static final String ACKNOWLEDGE_AS = "JMS_AMQP_ACK_TYPE";
    private static final Map<String, Integer> OUTCOMES = Map.of("accepted", 1, "rejected", 2, "released", 3, "modified", 5);
    private static final Pattern CONDITION = Pattern.compile("(.*) \\[condition = ([^\\]]+)\\]", Pattern.DOTALL);
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private final Map<String, Peer> peers = new HashMap<>();
    private final Map<String, Link> links = new HashMap<>();

    private static final class Peer {
        Connection connection;
        final Presettling presettling = new Presettling();
        final LinkedBlockingQueue<Exception> closings = new LinkedBlockingQueue<>();
        final CountDownLatch restored = new CountDownLatch(1);
    }

    private static final class Link {
        Session session;
        MessageProducer producer;
        MessageConsumer consumer;
        boolean isSettled;
        Message last;
        final LinkedBlockingQueue<Map<String, Object>> outcomes = new LinkedBlockingQueue<>();
    }

    /** Says of the link that is opened next whether it is presettled. */
    private static final class Presettling implements JmsPresettlePolicy {
        boolean isOn;

        @Override
        public JmsPresettlePolicy copy() {
            return this;
        }

        @Override
        public boolean isConsumerPresttled(JmsSession session, JmsDestination destination) {
            return isOn;
        }

        @Override
        public boolean isProducerPresttled(JmsSession session, JmsDestination destination) {
            return isOn;
        }
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
                return Map.of();
            case "drain":
                // The library fails when the router does not answer.
                if (links.get(on).consumer.receive(100) != null) throw new Exception("there was a message");
                return Map.of();
            case "send":
                return send(request);
            case "outcome":
                Map<String, Object> outcome = links.get(on).outcomes.poll(LIMIT_S, TimeUnit.SECONDS);
                if (outcome == null) throw new Exception("nothing came in time");
                return outcome;
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
        String address = "amqps://localhost:" + request.get("port").getAsInt() + "?amqp.drainTimeout=5000&amqp.saslMechanisms="
            + text(request, "mechanism");
        if (request.get("reconnect").getAsBoolean()) address = "failover:(" + address + ")?failover.initialReconnectDelay=10";
        JmsConnectionFactory factory = new JmsConnectionFactory(text(request, "user"), text(request, "password"), address);
        factory.setSslContext(trusting(text(request, "ca"), text(request, "key_store")));
        factory.setPresettlePolicy(peer.presettling);
        JmsDefaultPrefetchPolicy prefetch = new JmsDefaultPrefetchPolicy();
        prefetch.setAll(0);
        factory.setPrefetchPolicy(prefetch);
        factory.setConnectTimeout(TimeUnit.SECONDS.toMillis(LIMIT_S));
        peer.connection = factory.createConnection();
        peer.connection.setExceptionListener(peer.closings::add);
        ((JmsConnection) peer.connection).addConnectionListener(listener(peer));
        peer.connection.start();
        peers.put(text(request, "as"), peer);
        return Map.of();
    }

    /** Of what the library tells besides JMS, that it has connected again. */
    private static JmsConnectionListener listener(Peer peer) {
        Class<?>[] told = {JmsConnectionListener.class};
        return (JmsConnectionListener) Proxy.newProxyInstance(Client.class.getClassLoader(), told, (proxy, method, values) -> {
            if (method.getName().equals("onConnectionRestored")) peer.restored.countDown();
            return method.getName().equals("equals") ? proxy == values[0] : null;
        });
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

    private Link opened(JsonObject request) throws Exception {
        Peer peer = peers.get(text(request, "on"));
        Link link = new Link();
        link.isSettled = "settled".equals(text(request, "mode"));
        peer.presettling.isOn = link.isSettled;
        link.session = peer.connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
        return link;
    }

    private Map<String, Object> openSender(JsonObject request) throws Exception {
        Link link = opened(request);
        String address = text(request, "address");
        link.producer = link.session.createProducer(address == null ? null : link.session.createQueue(address));
        links.put(text(request, "as"), link);
        return Map.of();
    }

    private Map<String, Object> openReceiver(JsonObject request) throws Exception {
        Link link = opened(request);
        String address = text(request, "address");
        Queue queue = address == null ? link.session.createTemporaryQueue() : link.session.createQueue(address);
        link.consumer = link.session.createConsumer(queue);
        links.put(text(request, "as"), link);
        return Map.of("address", queue.getQueueName());
    }

    private Map<String, Object> send(JsonObject request) throws Exception {
        Link link = links.get(text(request, "on"));
        byte[] body = new byte[request.get("size").getAsInt()];
        Arrays.fill(body, (byte) 'x');
        BytesMessage message = link.session.createBytesMessage();
        message.writeBytes(body);
        message.setStringProperty("id", text(request, "id"));
        if (text(request, "reply_to") != null) message.setJMSReplyTo(link.session.createQueue(text(request, "reply_to")));
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message sent) {
                link.outcomes.add(Map.of("outcome", link.isSettled ? "settled" : "accepted"));
            }

            @Override
            public void onException(Message sent, Exception error) {
                link.outcomes.add(refused(error));
            }
        };
        if (text(request, "to") == null) {
            link.producer.send(message, listener);
        } else {
            Destination to = link.session.createQueue(text(request, "to"));
            link.producer.send(to, message, listener);
        }
        return Map.of();
    }

    /** Outcomes other than accepted are exceptions. */
    private static Map<String, Object> refused(Exception error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ProviderDeliveryReleasedException) return Map.of("outcome", "released");
            if (cause instanceof ProviderDeliveryModifiedException modified) {
                return Map.of("outcome", "modified", "failed", modified.isDeliveryFailed(),
                              "elsewhere", modified.isUndeliverableHere());
            }
        }
        Map<String, Object> reply = told(error);
        reply.put("outcome", "rejected");
        return reply;
    }

    private Map<String, Object> receive(JsonObject request) throws Exception {
        Link link = links.get(text(request, "on"));
        link.last = link.consumer.receive(request.get("limit_ms").getAsLong());
        if (link.last == null) throw new Exception("nothing came in time");
        byte[] body = link.last.getBody(byte[].class);
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("id", link.last.getStringProperty("id"));
        reply.put("size", body.length);
        reply.put("is_whole", isWhole(body));
        reply.put("reply_to", link.last.getJMSReplyTo() == null ? null : ((Queue) link.last.getJMSReplyTo()).getQueueName());
        return reply;
    }

    private static boolean isWhole(byte[] body) {
        for (byte each : body) if (each != 'x') return false;
        return true;
    }

    private Map<String, Object> settle(JsonObject request) throws Exception {
        Message message = links.get(text(request, "on")).last;
        message.setIntProperty(ACKNOWLEDGE_AS, OUTCOMES.get(text(request, "outcome")));
        message.acknowledge();
        return Map.of();
    }

    private static Map<String, Object> told(Throwable error) {
        Map<String, Object> reply = new LinkedHashMap<>();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            Matcher found = CONDITION.matcher(String.valueOf(cause.getMessage()));
            if (found.matches()) {
                reply.put("condition", found.group(2));
                reply.put("description", found.group(1));
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
