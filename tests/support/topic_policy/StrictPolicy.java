import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** What many a team of a platform refuses: unlimited retention, small segments, large messages, many partitions. */
public class StrictPolicy implements CreateTopicPolicy, AlterConfigPolicy {
    private static final long LEAST_SEGMENT_MS = 6L * 3600 * 1000;
    private static final long LEAST_SEGMENT_BYTES = 16L << 20;
    private static final long LARGEST_MESSAGE = 2L << 20;
    private static final int MOST_PARTITIONS = 8;

    @Override
    public void validate(CreateTopicPolicy.RequestMetadata request) {
        Integer partitions = request.numPartitions();
        if (partitions != null && partitions > MOST_PARTITIONS) {
            throw new PolicyViolationException("more than 8 partitions");
        }
        if (request.topic().contains("forbidden")) {
            throw new PolicyViolationException("the name is not of this platform");
        }
        check(request.topic(), request.configs());
    }

    @Override
    public void validate(AlterConfigPolicy.RequestMetadata request) {
        check(request.resource().name(), request.configs());
    }

    private static void check(String topic, Map<String, String> settings) {
        if (topic.endsWith(".source")) {
            return;
        }
        if (number(settings, "retention.ms", 0) < 0) {
            throw new PolicyViolationException("retention.ms is unlimited, at most 30 days are allowed");
        }
        if (number(settings, "segment.ms", LEAST_SEGMENT_MS) < LEAST_SEGMENT_MS) {
            throw new PolicyViolationException("segment.ms is less than 6 hours");
        }
        if (number(settings, "segment.bytes", LEAST_SEGMENT_BYTES) < LEAST_SEGMENT_BYTES) {
            throw new PolicyViolationException("segment.bytes is less than 16 MB");
        }
        if (number(settings, "max.message.bytes", 0) > LARGEST_MESSAGE) {
            throw new PolicyViolationException("max.message.bytes is more than 2 MB");
        }
    }

    private static long number(Map<String, String> settings, String name, long otherwise) {
        return settings.get(name) == null ? otherwise : Long.parseLong(settings.get(name));
    }

    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void close() {}
}
