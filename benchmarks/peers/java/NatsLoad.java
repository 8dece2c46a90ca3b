import io.nats.client.Connection;
import io.nats.client.JetStream;
import io.nats.client.JetStreamOptions;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.api.StorageType;
import io.nats.client.api.StreamConfiguration;
import java.time.Duration;
import java.util.List;

/**
 * Arguments: url stream depth-1|singles window warm-up seconds. Makes the stream, fails unless it holds in the end what was
 * acknowledged, and removes it.
 */
final class NatsLoad {
    /** Its own 2 s would end requests that wait behind thousands of others for a slow disk. */
    private static final JetStreamOptions PATIENT = JetStreamOptions.builder().requestTimeout(Duration.ofSeconds(60)).build();

    public static void main(String[] arguments) throws Exception {
        String stream = arguments[1];
        byte[] body = new byte[100];
        Options options = Options.builder().server(arguments[0]).maxMessagesInOutgoingQueue(1 << 16).build();
        try (Connection connection = Nats.connect(options)) {
            connection.jetStreamManagement().addStream(
                StreamConfiguration.builder().name(stream).subjects(stream).storageType(StorageType.File).build());
            JetStream publisher = connection.jetStream(PATIENT);
            Load load = new Load(Double.parseDouble(arguments[4]), Double.parseDouble(arguments[5]));
            if (arguments[2].equals("depth-1")) {
                load.each(List.<Load.Client>of(() -> publisher.publish(stream, body)));
            } else {
                load.pipelined(done -> publisher.publishAsync(stream, body).whenComplete((answer, error) -> {
                    if (error != null) {
                        load.failed(error);
                    }
                    done.run();
                }), Integer.parseInt(arguments[3]));
            }
            long held = connection.jetStreamManagement().getStreamInfo(stream).getStreamState().getMsgCount();
            load.verify(held);
            connection.jetStreamManagement().deleteStream(stream);
        }
    }
}
