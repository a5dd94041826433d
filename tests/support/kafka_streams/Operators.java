import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.function.Predicate;
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
import org.apache.kafka.streams.kstream.Joined;
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
import org.apache.kafka.streams.state.Stores;

/**
 * Operators of Kafka Streams' DSL, one at a time, with their results as JSON.
 *
 * <p>Argument: a file with settings of Kafka Streams. Each line of the standard input begins one: the operator, the topic
 * of the left side, that of the right one and the output topic, between tabs. The next line ends it. A value is an object
 * with "id", "ref", "n" and "at"; its time is the record's timestamp.
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
    private static final Duration KEPT = Duration.ofMinutes(1);

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
            (key, row, sums) -> sums(number(sums, "rows") + 1, number(sums, "total") + number(row, "n"));

    private static final Aggregator<String, JsonNode, JsonNode> SUBTRACT =
            (key, row, sums) -> sums(number(sums, "rows") - 1, number(sums, "total") - number(row, "n"));

    private static final Aggregator<String, JsonNode, JsonNode> ADD_AND_SAY =
            (key, row, sums) -> ((ObjectNode) ADD.apply(key, row, sums)).put("n", number(row, "n"));

    private static final Aggregator<String, JsonNode, JsonNode> ADD_EVEN_NULL = (key, row, sums) -> sums(
            number(sums, "rows") + 1, number(sums, "total") + (row == null ? 0 : number(row, "n")));

    private static JsonNode merged(String key, JsonNode one, JsonNode other) {
        return sums(number(one, "rows") + number(other, "rows"), number(one, "total") + number(other, "total"));
    }

    private static void send(KTable<Windowed<String>, JsonNode> windows, String output) {
        windows.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                .toStream()
                .map((window, value) -> {
                    ObjectNode row = ((ObjectNode) value).deepCopy();
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
            case "tumbling of some" -> send(
                    some(builder, left, row -> row.get("n").asLong() < 100).windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                            .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS)),
                    output);
            case "count" -> send(
                    some(builder, left, row -> true)
                            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                            .aggregate(() -> sums(0, 0), ADD_EVEN_NULL, Materialized.with(KEYS, ROWS)),
                    output);
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
            case "newest of a window" -> send(
                    group(builder, left).windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                            .reduce((one, next) -> number(next, "at") >= number(one, "at") ? next : one),
                    output);
            case "first of a session" -> send(
                    group(builder, left).windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE))
                            .reduce((one, other) -> number(one, "n") <= number(other, "n") ? one : other),
                    output);
            case "first" -> group(builder, left).reduce((first, next) -> first).toStream().to(output, produced);
            case "aggregate" -> group(builder, left)
                    .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            case "aggregate by another key" -> rows(builder, left)
                    .groupBy((key, row) -> text(row.get("ref")), Grouped.with(KEYS, ROWS))
                    .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            case "totals" -> group(builder, left)
                    .aggregate(() -> sums(0, 0), ADD_AND_SAY, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            case "each tenth" -> group(builder, left)
                    .aggregate(() -> sums(0, 0), ADD, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .filter((key, sums) -> number(sums, "rows") % 10 == 0)
                    .to(output, produced);
            case "another key" -> rows(builder, left)
                    .selectKey((key, row) -> text(row.get("ref")))
                    .to(output, produced);
            case "table" -> builder.table(left, consumed).toStream().to(output, produced);
            case "aggregate of a table" -> builder.table(left, consumed)
                    .groupBy((key, row) -> KeyValue.pair(text(row.get("ref")), row), Grouped.with(KEYS, ROWS))
                    .aggregate(() -> sums(0, 0), ADD, SUBTRACT, Materialized.with(KEYS, ROWS))
                    .toStream()
                    .to(output, produced);
            case "stream and table" -> builder.stream(left, consumed)
                    .leftJoin(builder.table(right, consumed), PAIR, Joined.with(KEYS, ROWS, ROWS))
                    .to(output, produced);
            case "stream and versions" -> builder.stream(left, consumed)
                    .leftJoin(
                            builder.table(
                                    right,
                                    consumed,
                                    Materialized.as(Stores.persistentVersionedKeyValueStore("versions", KEPT))),
                            PAIR,
                            Joined.with(KEYS, ROWS, ROWS, "join", GRACE))
                    .to(output, produced);
            case "stream and global table" -> rows(builder, left)
                    .leftJoin(builder.globalTable(right, consumed), (key, row) -> text(row.get("ref")), PAIR)
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

    private static long number(JsonNode row, String name) {
        return row.get(name).asLong();
    }

    private static KStream<String, JsonNode> rows(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(KEYS, ROWS)).filter((key, row) -> row != null);
    }

    private static KGroupedStream<String, JsonNode> group(StreamsBuilder builder, String topic) {
        return rows(builder, topic).groupByKey(Grouped.with(KEYS, ROWS));
    }

    /** Null values are among them, as an aggregate of windows gets them. */
    private static KGroupedStream<String, JsonNode> some(
            StreamsBuilder builder, String topic, Predicate<JsonNode> isMeant) {
        return builder.stream(topic, Consumed.with(KEYS, ROWS))
                .filter((key, row) -> row == null || isMeant.test(row))
                .groupByKey(Grouped.with(KEYS, ROWS));
    }

    private static KafkaStreams started(Properties settings, String operator, String left, String right, String output) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("application.id", "peer-" + output);
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, operator, left, right, output);
        KafkaStreams streams = new KafkaStreams(builder.build(own), own);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        return streams;
    }

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        try (var file = Files.newBufferedReader(Path.of(words[0]))) {
            settings.load(file);
        }
        CloseOptions leaving = CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP)
                .withTimeout(Duration.ofSeconds(20));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split("\t");
            KafkaStreams streams = started(settings, order[0], order[1], order[2], order[3]);
            orders.readLine();
            streams.close(leaving);
        }
    }
}
