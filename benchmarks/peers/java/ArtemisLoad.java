import java.util.ArrayList;
import java.util.List;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.core.transaction.impl.XidImpl;

/**
 * Artemis by its own ("core") client. Arguments: url queue depth-1|singles|session|xa-one-phase|xa-two-phase clients messages
 * window warm-up seconds. Makes the queue, fails unless it holds in the end what was acknowledged, and removes it.
 */
final class ArtemisLoad {
    private static final byte[] BODY = new byte[100];

    public static void main(String[] arguments) throws Exception {
        String queue = arguments[1];
        String mode = arguments[2];
        int messages = Integer.parseInt(arguments[4]);
        Load load = new Load(Double.parseDouble(arguments[6]), Double.parseDouble(arguments[7]));
        ServerLocator locator = ActiveMQClient.createServerLocator(arguments[0]);
        locator.setBlockOnDurableSend(mode.equals("depth-1")).setConfirmationWindowSize(1 << 20).setProducerWindowSize(-1);
        try (locator; ClientSessionFactory factory = locator.createSessionFactory(); ClientSession admin = factory.createSession()) {
            admin.createQueue(QueueConfiguration.of(queue).setRoutingType(RoutingType.ANYCAST).setDurable(true));
            if (mode.equals("singles")) {
                pipelined(factory, queue, Integer.parseInt(arguments[5]), load);
            } else {
                List<Load.Client> clients = new ArrayList<>();
                for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
                    clients.add(client(locator.createSessionFactory(), queue, mode, number, messages));
                }
                load.each(clients);
            }
            load.verify(admin.queueQuery(SimpleString.of(queue)).getMessageCount(), messages);
            admin.deleteQueue(queue);
        }
    }

    private static void pipelined(ClientSessionFactory factory, String queue, int window, Load load) throws Exception {
        try (ClientSession session = factory.createSession(true, true)) {
            ClientProducer producer = session.createProducer(queue);
            load.pipelined(done -> producer.send(message(session), acknowledged -> done.run()), window);
        }
    }

    private static Load.Client client(ClientSessionFactory factory, String queue, String mode, int number, int messages)
        throws Exception {
        boolean xa = mode.startsWith("xa-");
        ClientSession session = factory.createSession(xa, mode.equals("depth-1"), true);
        ClientProducer producer = session.createProducer(queue);
        switch (mode) {
            case "depth-1":
                return () -> producer.send(message(session));
            case "session":
                return () -> {
                    send(session, producer, messages);
                    session.commit();
                };
            case "xa-one-phase":
            case "xa-two-phase":
                return new XaClient(session, producer, mode.equals("xa-one-phase"), number, messages);
            default:
                throw new IllegalArgumentException(mode);
        }
    }

    private static void send(ClientSession session, ClientProducer producer, int messages) throws Exception {
        for (int sent = 0; sent < messages; sent++) {
            producer.send(message(session));
        }
    }

    private static ClientMessage message(ClientSession session) {
        ClientMessage message = session.createMessage(true);
        message.getBodyBuffer().writeBytes(BODY);
        return message;
    }

    private static final class XaClient implements Load.Client {
        private final ClientSession session;
        private final ClientProducer producer;
        private final boolean onePhase;
        private final int number;
        private final int messages;
        private long serial;

        XaClient(ClientSession session, ClientProducer producer, boolean onePhase, int number, int messages) {
            this.session = session;
            this.producer = producer;
            this.onePhase = onePhase;
            this.number = number;
            this.messages = messages;
        }

        @Override
        public void once() throws Exception {
            Xid xid = new XidImpl(new byte[] {1}, 1, (number + "-" + serial++).getBytes());
            session.start(xid, XAResource.TMNOFLAGS);
            send(session, producer, messages);
            session.end(xid, XAResource.TMSUCCESS);
            if (!onePhase) {
                session.prepare(xid);
            }
            session.commit(xid, onePhase);
        }
    }
}
