package edgeward.filter;

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpHeaders;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * A filter from a file in the format of Guava's {@code BloomFilter}, which {@code edgeward filter build --guava}
 * writes and a web server delivers. Follows changes of the file in the background.
 *
 * <p>The file contains neither its build time nor a signature. Its age is the time since {@code Last-Modified}, by the
 * server's clock. For a file URI, it is the time since the last change of the file, by this machine's clock. If the
 * file is older than {@code maxStaleness}, the answer is {@code ASK}. An id that is committed during a build may be
 * missing from the file. An id is therefore never answered {@code ABSENT} if it was committed longer ago than {@code
 * maxStaleness} <em>plus the time of a build</em>. Build the file more often than {@code maxStaleness}. Any server
 * that answers is trusted; use https. {@link FilterClient} has none of these limits.
 *
 * @param <T> the type of ids that the funnel accepts
 */
public final class GuavaFile<T> implements AutoCloseable {
    // Strategy (1 byte), number of hash functions (1 byte), number of 64-bit words (4 bytes).
    private static final int HEADER_BYTES = 6;
    // The size of the largest file that is read.
    private static final int BYTES_MAX = 1 << 30;

    private final URI at;
    private final Funnel<? super T> funnel;
    private final long maxStalenessMs;
    private final Supplier<Now> clock;
    private final Consumer<Exception> onError;
    private final Fetcher fetcher = new Fetcher(Duration.ofSeconds(5), Duration.ofSeconds(10));
    private final Thread thread;
    // Combines the two times of `clock` into one, in milliseconds, which advances with the faster of them.
    private final State.Clock time = new State.Clock();
    // The ETag for the next conditional request; null if the server sends none.
    private String tag;
    // The last change of the file that is in use.
    private Instant modified;

    private BloomFilter<T> filter;
    // The last moment of `time` at which the filter is fresh.
    private long deadline;

    private GuavaFile(
            URI at, Funnel<? super T> funnel, Duration maxStaleness, Supplier<Now> clock, Consumer<Exception> onError) {
        this.at = at;
        this.funnel = Objects.requireNonNull(funnel);
        this.maxStalenessMs = maxStaleness.toMillis();
        this.clock = clock;
        this.onError = onError;
        long periodMs = Math.min(60_000, Math.max(1_000, maxStalenessMs / 3));
        thread = new Thread(() -> follow(periodMs), "edgeward-guava-file");
        thread.setDaemon(true);
    }

    /**
     * Starts to follow the file, and returns at once.
     *
     * @param at an http, https or file URI
     * @param funnel the funnel with which the file was built
     * @param maxStaleness the age of the file from which on every answer is {@code ASK}
     * @param onError called with each error; the last valid filter stays in use
     */
    public static <T> GuavaFile<T> start(
            URI at, Funnel<? super T> funnel, Duration maxStaleness, Consumer<Exception> onError) {
        GuavaFile<T> file = new GuavaFile<>(at, funnel, maxStaleness, Now::ofThisMachine, onError);
        file.thread.start();
        return file;
    }

    /** For tests, which check the file at times of their choice and have clocks of their own. */
    static <T> GuavaFile<T> manual(
            URI at, Funnel<? super T> funnel, Duration maxStaleness, Supplier<Now> clock) {
        return new GuavaFile<>(at, funnel, maxStaleness, clock, error -> {});
    }

    /** The result of a query for an id. */
    public synchronized Answer answer(T id) {
        if (filter == null || time.moment(clock.get()) > deadline) {
            return Answer.ASK;
        }
        return filter.mightContain(id) ? Answer.MAYBE : Answer.ABSENT;
    }

    /** Returns false only if a request for the id can be skipped. */
    public boolean mayExist(T id) {
        return answer(id) != Answer.ABSENT;
    }

    /** Stops the background work. The filter can be queried until it is stale. */
    @Override
    public void close() {
        thread.interrupt();
    }

    private void follow(long periodMs) {
        try {
            while (true) {
                try {
                    check();
                } catch (IOException | FilterException | RuntimeException error) {
                    report(error);
                }
                Thread.sleep(periodMs);
            }
        } catch (InterruptedException stopped) {
            // The file was closed.
        }
    }

    private void report(Exception error) {
        try {
            onError.accept(error);
        } catch (RuntimeException ofTheListener) {
            // An exception of the listener must not stop the client.
        }
    }

    /** Checks once if the file has changed. */
    void check() throws IOException, FilterException, InterruptedException {
        Now sent = clock.get();
        if ("file".equals(at.getScheme())) {
            Path path = Path.of(at);
            Instant written = Files.readAttributes(path, BasicFileAttributes.class).lastModifiedTime().toInstant();
            byte[] bytes = null;
            if (!written.equals(modified)) {
                if (Files.size(path) > BYTES_MAX) {
                    throw new IOException(path + " is larger than the " + BYTES_MAX + " bytes allowed");
                }
                bytes = Files.readAllBytes(path);
            }
            apply(sent, bytes, written, Duration.between(written, Instant.ofEpochMilli(sent.wallMs())));
            return;
        }
        Map<String, String> fields = tag == null ? Map.of() : Map.of("If-None-Match", tag);
        Fetcher.Response answer = fetcher.get(at, fields, new byte[0], BYTES_MAX, Duration.ZERO);
        if (answer.error() != null) {
            throw answer.error();
        }
        if (answer.status() != 200 && (answer.status() != 304 || tag == null)) {
            throw new Fetcher.StatusException(answer.status());
        }
        HttpHeaders headers = answer.headers();
        Optional<Instant> lastModified = date(headers, "Last-Modified");
        Instant written = answer.status() == 304 ? lastModified.orElse(modified) : lastModified.orElse(null);
        Instant date = date(headers, "Date").orElse(null);
        if (written == null || date == null) {
            throw new IOException("the age of the file is unknown: the response has no Last-Modified or Date");
        }
        // RFC 9111 §4.2.3: a cached response left the server `Age` seconds ago. The server's clock now shows `Date`
        // plus `Age`.
        long ageSeconds = Math.max(0, headers.firstValueAsLong("Age").orElse(0));
        byte[] bytes = answer.status() == 304 ? null : answer.body();
        apply(sent, bytes, written, Duration.between(written, date.plusSeconds(ageSeconds)));
        if (answer.status() == 200) {
            tag = headers.firstValue("ETag").orElse(null);
        }
    }

    private static Optional<Instant> date(HttpHeaders headers, String name) {
        try {
            return headers.firstValue(name)
                    .map(text -> ZonedDateTime.parse(text, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant());
        } catch (DateTimeException error) {
            return Optional.empty();
        }
    }

    /**
     * Processes a new file, or the new age of the current one, for which {@code bytes} is null. {@code age} is the age
     * of the file at the time {@code sent}.
     */
    private void apply(Now sent, byte[] bytes, Instant written, Duration age) throws IOException, FilterException {
        BloomFilter<T> fresh = bytes == null ? null : read(bytes, funnel);
        synchronized (this) {
            boolean same = filter != null && written.equals(modified);
            if (fresh != null) {
                filter = fresh;
            }
            modified = written;
            // A negative age means that the date is in the future: a clock is wrong by an unknown amount.
            long ageMs = age.plusNanos(999_999).toMillis();
            // Jitter of the clocks can hide elapsed time, so the deadline is set earlier.
            long left = age.isNegative() ? -1 : maxStalenessMs - ageMs - 2 * State.JITTER_MS;
            long until = time.observe(sent) + left;
            // The age of an unchanged file never decreases, even if a cache reports a wrong `Age`.
            deadline = same ? Math.min(deadline, until) : until;
        }
    }

    /**
     * Checks the header, then calls Guava's reader. Guava would allocate as many words as the header says, up to
     * 16 GiB, before it finds that they are missing.
     */
    static <T> BloomFilter<T> read(byte[] bytes, Funnel<? super T> funnel) throws IOException, FilterException {
        if (bytes.length < HEADER_BYTES || bytes[0] != 1 || bytes[1] == 0) {
            throw new FilterException("not a Guava Bloom filter of strategy 1 (MURMUR128_MITZ_64)");
        }
        long words =
                (bytes[2] & 0xffL) << 24 | (bytes[3] & 0xffL) << 16 | (bytes[4] & 0xffL) << 8 | bytes[5] & 0xffL;
        if (words == 0 || bytes.length != HEADER_BYTES + 8 * words) {
            throw new FilterException(
                    "the Guava Bloom filter has " + bytes.length + " bytes and its header states "
                            + (HEADER_BYTES + 8 * words));
        }
        @SuppressWarnings("unchecked")
        Funnel<T> exact = (Funnel<T>) funnel;
        return BloomFilter.readFrom(new ByteArrayInputStream(bytes), exact);
    }
}
