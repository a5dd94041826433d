import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The work of topology retail.loyalty on Kafka Streams: a notification for each invoice of a PRIME customer, and every
 * customer's balance in a store with a changelog.
 *
 * <p>Arguments: a file with settings of Kafka Streams, the source topic, the output topic, its number of partitions.
 * Prints "RUNNING" with seconds since the start of the JVM, and "RESTORED" with records of a restored store.
 */
public final class LoyaltyPoints {
    private static final String STORE = "rewards";
    private static final double RATE = 0.02;

    @JsonIgnoreProperties(ignoreUnknown = true)
    public record Invoice(String InvoiceNumber, String CustomerType, String CustomerCardNo, double TotalAmount) {
        boolean isPrime() {
            return "PRIME".equals(CustomerType) && CustomerCardNo != null;
        }

        Notification scored() {
            return new Notification(InvoiceNumber, CustomerCardNo, TotalAmount, TotalAmount * RATE, 0.0);
        }
    }

    public record Notification(
            String InvoiceNumber,
            String CustomerCardNo,
            double TotalAmount,
            double EarnedLoyaltyPoints,
            double TotalLoyaltyPoints) {
        Notification after(Double balance) {
            double total = balance == null ? EarnedLoyaltyPoints : balance + EarnedLoyaltyPoints;
            return new Notification(InvoiceNumber, CustomerCardNo, TotalAmount, EarnedLoyaltyPoints, total);
        }
    }

    /** Adds a notification to its customer's balance. */
    private static final class Balance extends ContextualFixedKeyProcessor<String, Notification, Notification> {
        private KeyValueStore<String, Double> balances;

        @Override
        public void init(FixedKeyProcessorContext<String, Notification> context) {
            super.init(context);
            balances = context.getStateStore(STORE);
        }

        @Override
        public void process(FixedKeyRecord<String, Notification> added) {
            Notification scored = added.value().after(balances.get(added.key()));
            balances.put(added.key(), scored.TotalLoyaltyPoints());
            context().forward(added.withValue(scored));
        }
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectMapper mapper = new ObjectMapper();
        ObjectWriter writer = mapper.writerFor(type);
        ObjectReader reader = mapper.readerFor(type);
        return Serdes.serdeFrom(
                (topic, value) -> {
                    try {
                        return value == null ? null : writer.writeValueAsBytes(value);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                },
                (topic, bytes) -> {
                    try {
                        return bytes == null ? null : reader.readValue(bytes);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                });
    }

    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long records) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long records) {
            System.out.println("RESTORED " + records);
        }
    }

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        try (var file = Files.newBufferedReader(Path.of(words[0]))) {
            settings.load(file);
        }
        String source = words[1];
        String output = words[2];
        int partitions = Integer.parseInt(words[3]);
        Serde<Notification> notifications = json(Notification.class);

        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                        Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.Double())
                .withLoggingEnabled(Map.of())
                .withCachingEnabled());
        builder.stream(source, Consumed.with(Serdes.String(), json(Invoice.class)))
                .filter((store, invoice) -> invoice.isPrime())
                .map((store, invoice) -> KeyValue.pair(invoice.CustomerCardNo(), invoice.scored()))
                .repartition(Repartitioned.with(Serdes.String(), notifications)
                        .withName("by-customer")
                        .withNumberOfPartitions(partitions))
                .processValues(Balance::new, STORE)
                .to(output, Produced.with(Serdes.String(), notifications));

        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setStateListener((state, before) -> {
            long started = ManagementFactory.getRuntimeMXBean().getStartTime();
            System.out.println(state + " " + (System.currentTimeMillis() - started) / 1000.0);
        });
        // A member that stays in its group would keep the next start waiting for the end of its session.
        CloseOptions leaving = CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP)
                .withTimeout(Duration.ofSeconds(20));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
        Thread.currentThread().join();
    }
}
