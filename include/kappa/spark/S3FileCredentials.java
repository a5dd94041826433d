package dev.kappa;

import java.io.IOException;
import java.io.InputStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.s3a.CredentialInitializationException;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.profiles.Profile;
import software.amazon.awssdk.profiles.ProfileFile;

/**
 * The keys of a lake on S3 that a file has at the moment of a request: its client file, or a profile in a file of AWS's
 * tools. Settings of Spark name the file and hold no key, and a session lives on when the file is replaced.
 */
public final class S3FileCredentials implements AwsCredentialsProvider {
  private static final String FILE = "fs.s3a.kappa.keys.file";
  private static final String PROFILE = "fs.s3a.kappa.keys.profile";
  private static final long WRITING_MS = 10_000;
  private static final int LOOKS = 10;
  private static final long PAUSE_MS = 50;

  /** As for Python: only its owner may write it, and at most its group may read it. */
  private static final Set<PosixFilePermission> OF_OTHERS =
      Set.of(
          PosixFilePermission.GROUP_WRITE,
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE,
          PosixFilePermission.OTHERS_EXECUTE);

  private final Path file;
  private final String profile;
  private List<Object> state;
  private AwsCredentials keys;

  public S3FileCredentials(Configuration conf) {
    file = Path.of(conf.getTrimmed(FILE, ""));
    profile = conf.getTrimmed(PROFILE, "");
  }

  @Override
  public synchronized AwsCredentials resolveCredentials() {
    for (int look = 1; ; look++) {
      PosixFileAttributes now = attributes();
      List<Object> present = Arrays.asList(now.lastModifiedTime(), now.size(), now.fileKey(), now.permissions());
      if (present.equals(state)) {
        return keys;
      }
      if (!Collections.disjoint(now.permissions(), OF_OTHERS)) {
        throw refusal("other users can read or write. Run: chmod 600 " + file);
      }
      try {
        AwsCredentials next = read();
        if (!isHalf(next) || !isBeingWritten(now)) {
          keys = next;
          state = present; // looked at before it was read: one that is replaced meanwhile is read again
        }
        return keys;
      } catch (CredentialInitializationException noKeys) {
        if (!isBeingWritten(now) || keys == null && look == LOOKS) {
          throw noKeys;
        }
      }
      if (keys != null) {
        return keys;
      }
      pause(); // a new process has no keys before, and a tool writes the file in a moment
    }
  }

  private PosixFileAttributes attributes() {
    try {
      return Files.readAttributes(file, PosixFileAttributes.class);
    } catch (IOException absent) {
      throw refusal("cannot be read: " + absent);
    }
  }

  /** A tool writes the token last: keys without one may be a half of the next login. */
  private boolean isHalf(AwsCredentials next) {
    return keys instanceof AwsSessionCredentials && !(next instanceof AwsSessionCredentials);
  }

  private static void pause() {
    try {
      Thread.sleep(PAUSE_MS);
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    }
  }

  /** AWS's tools empty the file of profiles and write it, where a client file is replaced in one step. */
  private boolean isBeingWritten(PosixFileAttributes now) {
    return !profile.isEmpty() && System.currentTimeMillis() - now.lastModifiedTime().toMillis() < WRITING_MS;
  }

  private AwsCredentials read() {
    Map<String, String> options;
    try {
      options = profile.isEmpty() ? clientFile() : profile();
    } catch (IOException | IllegalArgumentException unreadable) { // the text of neither has a value of the file
      throw refusal("cannot be read: " + unreadable);
    }
    String key = options.getOrDefault("aws_access_key_id", "");
    String secret = options.getOrDefault("aws_secret_access_key", "");
    String token = options.getOrDefault("aws_session_token", "");
    if (key.isEmpty() || secret.isEmpty()) {
      throw refusal("has no keys any more");
    }
    return token.isEmpty() ? AwsBasicCredentials.create(key, secret) : AwsSessionCredentials.create(key, secret, token);
  }

  private Map<String, String> clientFile() throws IOException {
    Properties options = new Properties();
    try (Reader text = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
      options.load(text);
    }
    Map<String, String> texts = new HashMap<>();
    options.stringPropertyNames().forEach(name -> texts.put(name, options.getProperty(name).trim())); // as for Python
    return texts;
  }

  private Map<String, String> profile() throws IOException {
    try (InputStream text = Files.newInputStream(file)) {
      return ProfileFile.builder()
          .content(text)
          .type(ProfileFile.Type.CREDENTIALS)
          .build()
          .profile(profile)
          .map(Profile::properties)
          .orElse(Map.of());
    }
  }

  /** What Hadoop takes for a refusal, by its cause: requests without keys it would repeat for minutes. */
  private CredentialInitializationException refusal(String reason) {
    String place = profile.isEmpty() ? file.toString() : "[" + profile + "] in " + file;
    String text = FILE + " names " + place + ", which " + reason;
    return new CredentialInitializationException(text, new AccessDeniedException(text));
  }
}
