import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What ProducerPerformance cannot do: one message at a time, and many producers with small transactions.
 * Arguments: bootstrap topic depth-1|transactions clients messages warm-up seconds.
 */
final class KafkaLoad {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        boolean transactional = arguments[2].equals("transactions");
        int messages = Integer.parseInt(arguments[4]);
        byte[] body = new byte[100];
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        List<Load.Client> clients = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            KafkaProducer<byte[], byte[]> producer = producer(bootstrap, transactional ? topic + "-" + number : null);
            producers.add(producer);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, number % 4, null, body);
            if (transactional) {
                producer.initTransactions();
                clients.add(() -> {
                    producer.beginTransaction();
                    for (int sent = 0; sent < messages; sent++) {
                        producer.send(record);
                    }
                    producer.commitTransaction();
                });
            } else {
                clients.add(() -> producer.send(record).get());
            }
        }
        new Load(Double.parseDouble(arguments[5]), Double.parseDouble(arguments[6])).each(clients);
        producers.forEach(KafkaProducer::close);
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.LINGER_MS_CONFIG, "0");
        settings.put(ProducerConfig.ENABLE_METRICS_PUSH_CONFIG, "false");
        if (transactionalId != null) {
            settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
