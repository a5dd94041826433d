import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Operators of Kafka Streams' DSL, one at a time, with their results as JSON.
 *
 * <p>Arguments: a file with settings of Kafka Streams, the operator, the topic of the left side, that of the right one,
 * the output topic. A value is an object with "id", "ref" and "n"; its time is the record's timestamp.
 */
public final class Operators {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> KEYS = Serdes.String();
    private static final Serde<JsonNode> ROWS = rows();
    private static final Duration GRACE = Duration.ofSeconds(2);
    private static final Duration GAP = Duration.ofSeconds(3);
    private static final Duration SIZE = Duration.ofSeconds(10);
    private static final Duration STEP = Duration.ofSeconds(5);
    private static final Duration NEAR = Duration.ofSeconds(4);

    private static Serde<JsonNode> rows() {
        return Serdes.serdeFrom(
                (topic, value) -> {
                    try {
                        return value == null ? null : JSON.writeValueAsBytes(value);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                },
                (topic, bytes) -> {
                    try {
                        return bytes == null ? null : JSON.readTree(bytes);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                });
    }

    private static JsonNode sums(long rows, long total) {
        return JSON.createObjectNode().put("rows", rows).put("total", total);
    }

    private static final Aggregator<String, JsonNode, JsonNode> ADD =
            (key, row, sums) -> sums(
                    sums.get("rows").asLong() + 1, sums.get("total").asLong() + row.get("n").asLong());

    private static JsonNode merged(String key, JsonNode one, JsonNode other) {
        return sums(
                one.get("rows").asLong() + other.get("rows").asLong(),
                one.get("total").asLong() + other.get("total").asLong());
    }

    private static void send(KTable<Windowed<String>, JsonNode> windows, String output) {
        windows.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                .toStream()
                .map((window, sums) -> {
                    ObjectNode row = ((ObjectNode) sums).deepCopy();
                    row.put("id", window.key()).put("start", window.window().start()).put("end", window.window().end());
                    return KeyValue.pair(window.key(), (JsonNode) row);
                })
                .to(output, Produced.with(KEYS, ROWS));
    }

    private static final ValueJoiner<JsonNode, JsonNode, JsonNode> PAIR = (left, right) -> {
        ObjectNode row = JSON.createObjectNode();
        row.set("left", left == null ? null : left.get("n"));
        row.set("right", right == null ? null : right.get("n"));
        return row;
    };

    private static void build(StreamsBuilder builder, String operator, String left, String right, String output) {
        Consumed<String, JsonNode> consumed = Consumed.with(KEYS, ROWS);
        Produced<String, JsonNode> produced = Produced.with(KEYS, ROWS);
        StreamJoined<String, JsonNode, JsonNode> joined = StreamJoined.with(KEYS, ROWS, ROWS);
        JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(NEAR, GRACE);
        switch (operator) {
            case "tumbling" -> send(
                    group(builder, left).windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                            .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS)),
                    output);
            case "hopping" -> send(
                    group(builder, left).windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(STEP))
                            .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS)),
                    output);
            case "session" -> send(
                    group(builder, left).windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE))
                            .aggregate(() -> sums(0, 0), ADD, Operators::merged, Materialized.with(KEYS, ROWS)),
                    output);
            case "sliding" -> send(
                    group(builder, left).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(NEAR, GRACE))
                            .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS)),
                    output);
            case "aggregate" -> group(builder, left)
                    .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            case "cogroup" -> group(builder, left)
                    .cogroup(ADD)
                    .cogroup(group(builder, right), ADD)
                    .aggregate(() -> sums(0, 0), Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            case "inner join" -> builder.stream(left, consumed)
                    .join(builder.stream(right, consumed), PAIR, near, joined)
                    .to(output, produced);
            case "left join" -> builder.stream(left, consumed)
                    .leftJoin(builder.stream(right, consumed), PAIR, near, joined)
                    .to(output, produced);
            case "outer join" -> builder.stream(left, consumed)
                    .outerJoin(builder.stream(right, consumed), PAIR, near, joined)
                    .to(output, produced);
            case "inner join of tables" -> builder.table(left, consumed)
                    .join(builder.table(right, consumed), PAIR)
                    .toStream()
                    .to(output, produced);
            case "left join of tables" -> builder.table(left, consumed)
                    .leftJoin(builder.table(right, consumed), PAIR)
                    .toStream()
                    .to(output, produced);
            case "outer join of tables" -> builder.table(left, consumed)
                    .outerJoin(builder.table(right, consumed), PAIR)
                    .toStream()
                    .to(output, produced);
            case "foreign key join" -> builder.table(left, consumed)
                    .join(builder.table(right, consumed), row -> text(row.get("ref")), PAIR, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            default -> throw new IllegalArgumentException(operator);
        }
    }

    private static String text(JsonNode value) {
        return value == null || value.isNull() ? null : value.asText();
    }

    private static KGroupedStream<String, JsonNode> group(StreamsBuilder builder, String topic) {
        KStream<String, JsonNode> rows =
                builder.stream(topic, Consumed.with(KEYS, ROWS)).filter((key, row) -> row != null);
        return rows.groupByKey(Grouped.with(KEYS, ROWS));
    }

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        try (var file = Files.newBufferedReader(Path.of(words[0]))) {
            settings.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, words[1], words[2], words[3], words[4]);
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        CloseOptions leaving = CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP)
                .withTimeout(Duration.ofSeconds(20));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Thread.currentThread().join();
    }
}
