package dev.kappa;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Commits to Delta tables on S3 by the lock that deltalake takes too: the store makes an entry of the log only where
 * there is none. Delta's own log store looks first and writes then, and overwrites what came in between.
 *
 * <p>An answer may be lost, or say of an own entry that it is there already. What the entry holds settles it: no two
 * commits have the same bytes, since each names its own files and a transaction of its own.
 */
public final class S3ConditionalLogStore extends S3SingleDriverLogStore {
  private static final String ONLY_IF_ABSENT = "fs.option.create.conditional.overwrite";
  private static final int ATTEMPTS = 3;

  public S3ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
    if (overwrite) {
      super.write(path, actions, overwrite, conf);
      return;
    }
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      lines.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
    byte[] entry = lines.toByteArray();
    FileSystem fs = path.getFileSystem(conf);
    for (int attempt = 1; ; attempt++) {
      try {
        create(fs, path, entry);
        return;
      } catch (IOException refused) { // or unclear: of a broken connection nobody knows
        byte[] present = read(fs, path, refused);
        if (Arrays.equals(present, entry)) {
          return;
        }
        if (present != null) {
          throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(refused);
        }
        if (attempt == ATTEMPTS) {
          throw refused;
        }
      }
    }
  }

  private static void create(FileSystem fs, Path path, byte[] entry) throws IOException {
    FSDataOutputStream stream = (FSDataOutputStream) fs.createFile(path).must(ONLY_IF_ABSENT, true).build();
    stream.write(entry);
    stream.close(); // the PUT; after a failed write none may follow: it would publish half of the entry
  }

  /** What the entry holds, or null where there is none; where that stays unknown, the first error counts. */
  private static byte[] read(FileSystem fs, Path path, IOException first) throws IOException {
    try (FSDataInputStream stream = fs.open(path)) {
      return stream.readAllBytes();
    } catch (FileNotFoundException absent) {
      return null;
    } catch (IOException unreadable) {
      first.addSuppressed(unreadable);
      throw first;
    }
  }
}
