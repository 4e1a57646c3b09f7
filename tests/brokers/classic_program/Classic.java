import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.AuthorizationEntry;
import org.apache.activemq.security.AuthorizationPlugin;
import org.apache.activemq.security.DefaultAuthorizationMap;
import org.apache.activemq.security.SimpleAuthenticationPlugin;

/** ActiveMQ Classic with some queues and no others. Arguments: URI to listen at, folder, user, password, queues. */
public class Classic {
    public static void main(String[] given) throws Exception {
        List<ActiveMQDestination> queues = new ArrayList<>();
        for (String name : Arrays.asList(given).subList(4, given.length)) {
            queues.add(new ActiveMQQueue(name));
        }
        // It makes a queue for everybody who may use it.
        DefaultAuthorizationMap allowed = new DefaultAuthorizationMap();
        List<AuthorizationEntry> entries = new ArrayList<>();
        for (ActiveMQDestination queue : queues) {
            entries.add(entry(queue));
        }
        entries.add(entry(new ActiveMQTopic("ActiveMQ.Advisory.>")));
        allowed.setAuthorizationEntries(new ArrayList<>(entries));

        BrokerService broker = new BrokerService();
        broker.setBrokerName("classic");
        broker.setDataDirectoryFile(new File(given[1]));
        broker.setUseJmx(false);
        broker.setPlugins(new BrokerPlugin[] {
            new SimpleAuthenticationPlugin(List.of(new AuthenticationUser(given[2], given[3], "users"))),
            new AuthorizationPlugin(allowed),
        });
        broker.setDestinations(queues.toArray(new ActiveMQDestination[0]));
        broker.addConnector(given[0]);
        broker.start();
        broker.waitUntilStarted();
        System.out.println("ready");
        broker.waitUntilStopped();
    }

    private static AuthorizationEntry entry(ActiveMQDestination of) throws Exception {
        AuthorizationEntry made = new AuthorizationEntry();
        made.setDestination(of);
        made.setRead("users");
        made.setWrite("users");
        made.setAdmin("users");
        return made;
    }
}
