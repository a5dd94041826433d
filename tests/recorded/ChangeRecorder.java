import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedWriter;
import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Runs statements in a PostgreSQL, or records what Debezium's embedded engine says of them. */
public class ChangeRecorder {

    public static void main(String[] args) throws Exception {
        if (args[0].equals("sql")) {
            runStatements(args[1], Files.readString(Path.of(args[2])));
        } else {
            recordChanges(args[1], Path.of(args[2]));
        }
    }

    /** Statements by lines that end in a semicolon; rows of queries go to standard output, each a line. */
    private static void runStatements(String url, String script) throws Exception {
        try (Connection connection = DriverManager.getConnection(url); Statement statement = connection.createStatement()) {
            for (String one : script.split(";\n")) {
                if (!one.isBlank() && statement.execute(one)) {
                    ResultSet rows = statement.getResultSet();
                    while (rows.next()) {
                        System.out.println(rows.getString(1));
                    }
                }
            }
        }
    }

    /** A line for each record, as JSON: topic, key and value, these two as texts. Ends when standard input does. */
    private static void recordChanges(String properties, Path into) throws Exception {
        Properties given = new Properties();
        try (FileInputStream file = new FileInputStream(properties)) {
            given.load(file);
        }
        BufferedWriter out = Files.newBufferedWriter(
            into, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(given)
            .notifying(event -> write(out, event))
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println(message + " " + error);
                    System.exit(1);
                }
            })
            .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (System.in.read() >= 0) {
            continue;
        }
        engine.close();
        executor.shutdown();
        executor.awaitTermination(60, TimeUnit.SECONDS);
        System.exit(0);
    }

    private static void write(BufferedWriter out, ChangeEvent<String, String> event) {
        try {
            out.write("{\"topic\":" + quoted(event.destination()) + ",\"key\":" + quoted(event.key()) + ",\"value\":"
                + quoted(event.value()) + "}\n");
            out.flush();
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static String quoted(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder made = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                made.append('\\').append(one);
            } else if (one < 0x20) {
                made.append(String.format("\\u%04x", (int) one));
            } else {
                made.append(one);
            }
        }
        return made.append('"').toString();
    }
}
