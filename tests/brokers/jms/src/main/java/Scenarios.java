import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * What applications do with a broker by Qpid JMS: `Scenarios NAME URL`.
 *
 * Prints what happened, `name: value` a line; tests/brokers/test_jms_to_brokers.py judges it.
 */
public final class Scenarios {
    private static final long LIMIT_MS = 20_000;
    private static final long NOTHING_MS = 500; // after which nothing is believed to come

    private final String url;

    private Scenarios(String url) {
        this.url = url;
    }

    public static void main(String[] arguments) throws Exception {
        Scenarios scenarios = new Scenarios(arguments[1]);
        switch (arguments[0]) {
            case "durable" -> scenarios.durable();
            case "shared" -> scenarios.shared();
            case "groups" -> scenarios.groups();
            case "transacted" -> scenarios.transacted();
            case "dead-letters" -> scenarios.deadLetters();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    /** A subscription gets what was published while its subscriber was away. */
    private void durable() throws JMSException {
        try (Connection reader = connect("reader", 10)) {
            Session session = reader.createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.createDurableSubscriber(session.createTopic("news"), "daily");
        }
        publish("one", "two", "three");
        try (Connection reader = connect("reader", 10)) {
            Session session = reader.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createDurableSubscriber(session.createTopic("news"), "daily");
            say("received", texts(consumer, 3));
        }
        try (Connection reader = connect("reader", 10)) {
            Session session = reader.createSession(false, Session.AUTO_ACKNOWLEDGE);
            try {
                session.unsubscribe("daily");
                say("unsubscribed", "yes");
            } catch (JMSException error) {
                say("unsubscribed", error.getMessage());
            }
        }
    }

    /** Two consumers share a subscription: each message comes to one of them. */
    private void shared() throws JMSException {
        try (Connection connection = connect(null, 1)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic("news");
            MessageConsumer first = session.createSharedConsumer(topic, "team");
            Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer second = other.createSharedConsumer(topic, "team");
            publish("1", "2", "3", "4", "5", "6");
            List<String> firsts = new ArrayList<>();
            List<String> seconds = new ArrayList<>();
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (firsts.size() + seconds.size() < 6 && System.currentTimeMillis() < end) {
                takeOne(first, firsts, 50);
                takeOne(second, seconds, 50);
            }
            takeOne(first, firsts, NOTHING_MS);
            takeOne(second, seconds, NOTHING_MS);
            say("first", String.join(" ", firsts));
            say("second", String.join(" ", seconds));
        }
    }

    /** The messages of a group come to one consumer, in their order. */
    private void groups() throws JMSException {
        try (Connection connection = connect(null, 100)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("parts");
            MessageConsumer first = session.createConsumer(queue);
            Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer second = other.createConsumer(queue);
            MessageProducer producer = session.createProducer(queue);
            for (int number = 0; number < 20; number++) {
                TextMessage message = session.createTextMessage(String.valueOf(number));
                message.setStringProperty("JMSXGroupID", "group" + number % 4);
                producer.send(message);
            }
            List<String> firsts = new ArrayList<>();
            List<String> seconds = new ArrayList<>();
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (firsts.size() + seconds.size() < 20 && System.currentTimeMillis() < end) {
                takeOne(first, firsts, 50);
                takeOne(second, seconds, 50);
            }
            say("first", String.join(" ", firsts));
            say("second", String.join(" ", seconds));
        }
    }

    private void transacted() throws JMSException {
        try (Connection connection = connect(null, 10)) {
            Session watching = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = watching.createQueue("parts");
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            MessageProducer producer = session.createProducer(queue);
            producer.send(session.createTextMessage("undone"));
            session.rollback();
            producer.send(session.createTextMessage("one"));
            producer.send(session.createTextMessage("two"));
            try (MessageConsumer watcher = watching.createConsumer(queue)) {
                say("before commit", String.valueOf(watcher.receive(NOTHING_MS)));
            }
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            say("taken and given back", texts(consumer, 2));
            session.rollback();
            say("taken again", texts(consumer, 2));
            session.commit();
            try (MessageConsumer watcher = watching.createConsumer(queue)) {
                say("left", String.valueOf(watcher.receive(NOTHING_MS)));
            }
        }
    }

    /** The broker counts deliveries, and takes a message away that has come back too often. */
    private void deadLetters() throws JMSException {
        try (Connection connection = connect(null, 1)) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            Queue queue = session.createQueue("parts");
            session.createProducer(queue).send(session.createTextMessage("bad"));
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            StringJoiner counts = new StringJoiner(" ");
            for (Message message; (message = consumer.receive(counts.length() < 5 ? LIMIT_MS : NOTHING_MS)) != null;) {
                String redelivered = message.getJMSRedelivered() ? "again" : "first";
                counts.add(message.getIntProperty("JMSXDeliveryCount") + redelivered);
                session.rollback();
            }
            say("deliveries", counts.toString());
            MessageConsumer dead = session.createConsumer(session.createQueue("DLQ"));
            say("dead", texts(dead, 1));
            session.commit();
        }
    }

    private Connection connect(String clientId, int prefetch) throws JMSException {
        String options = "?jms.prefetchPolicy.all=" + prefetch + "&jms.requestTimeout=" + LIMIT_MS;
        Connection connection = new JmsConnectionFactory(url + options).createConnection();
        if (clientId != null) connection.setClientID(clientId);
        connection.start();
        return connection;
    }

    private void publish(String... texts) throws JMSException {
        try (Connection connection = connect(null, 1)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createTopic("news"));
            for (String text : texts) producer.send(session.createTextMessage(text));
        }
    }

    private static void takeOne(MessageConsumer consumer, List<String> into, long limitMs) throws JMSException {
        Message message = consumer.receive(limitMs);
        if (message != null) into.add(message.getBody(String.class));
    }

    private static String texts(MessageConsumer consumer, int count) throws JMSException {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            Message message = consumer.receive(LIMIT_MS);
            if (message == null) break;
            found.add(message.getBody(String.class));
        }
        return String.join(" ", found);
    }

    private static void say(String name, String value) {
        System.out.println(name + ": " + value);
    }
}
