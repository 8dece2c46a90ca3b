import java.nio.file.Path;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** An Artemis broker with the settings of a broker.xml, whose path is the argument; it ends with the process. */
final class ArtemisServer {
    public static void main(String[] arguments) throws Exception {
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfigResourcePath(Path.of(arguments[0]).toUri().toString());
        broker.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                broker.stop();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        System.out.println("journal: " + broker.getActiveMQServer().getConfiguration().getJournalType());
        System.out.println("ready");
    }
}
