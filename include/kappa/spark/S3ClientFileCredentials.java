package dev.kappa;

import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.s3a.CredentialInitializationException;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;

/**
 * The keys that the client file of a lake on S3 has at the moment of a request. Settings of Spark name the file and hold
 * no key, and a session lives on when the file is replaced.
 */
public final class S3ClientFileCredentials implements AwsCredentialsProvider {
  private static final String FILE = "fs.s3a.kappa.client.file";

  private final Path file;
  private List<Object> state;
  private AwsCredentials keys;

  public S3ClientFileCredentials(Configuration conf) {
    file = Path.of(conf.getTrimmed(FILE, ""));
  }

  @Override
  public synchronized AwsCredentials resolveCredentials() {
    try {
      BasicFileAttributes now = Files.readAttributes(file, BasicFileAttributes.class);
      List<Object> present = Arrays.asList(now.lastModifiedTime(), now.size(), now.fileKey());
      if (!present.equals(state)) { // looked at before it is read: one that is replaced meanwhile is read again
        keys = read();
        state = present;
      }
      return keys;
    } catch (IOException | IllegalArgumentException unreadable) { // the text of neither has a value of the file
      throw refusal("cannot be read: " + unreadable);
    }
  }

  private AwsCredentials read() throws IOException {
    Properties options = new Properties();
    try (Reader text = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
      options.load(text);
    }
    String key = options.getProperty("aws_access_key_id", "");
    String secret = options.getProperty("aws_secret_access_key", "");
    String token = options.getProperty("aws_session_token", "");
    if (key.isEmpty() || secret.isEmpty()) {
      throw refusal("has no keys any more");
    }
    return token.isEmpty() ? AwsBasicCredentials.create(key, secret) : AwsSessionCredentials.create(key, secret, token);
  }

  /** What Hadoop takes for a refusal, by its cause: requests without keys it would repeat for minutes. */
  private CredentialInitializationException refusal(String reason) {
    String text = FILE + " names " + file + ", which " + reason;
    return new CredentialInitializationException(text, new AccessDeniedException(text));
  }
}
