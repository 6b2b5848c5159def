package edgeward.filter;

import edgeward.filter.Manifest.Entry;
import edgeward.filter.Manifest.Proof;
import edgeward.filter.Manifest.Snapshot;
import java.io.IOException;
import java.net.URI;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Predicate;

/**
 * Follows a published set on two threads of its own. Queries return at once. Thread-safe.
 *
 * <p>The client never answers {@code ABSENT} for an id that was committed more than {@code maxStaleness} ago. It
 * answers {@code ASK} until it has a filter, and whenever it cannot prove that the filter is fresh. Data that is
 * forged, corrupt, too large or outdated is refused and counted; the last valid filter stays in use.
 */
public final class FilterClient implements AutoCloseable {
    // The maximum size of a manifest, which is one line of text.
    private static final int LINE_BYTES_MAX = 64 << 10;
    // The minimum pause between two polls.
    private static final long PAUSE_MIN_MS = 10;
    private static final long PERIOD_MIN_MS = 50;
    // Most proxies tolerate a response that sends no byte for this time.
    private static final long PERIOD_MAX_MS = 25_000;
    private static final long BACKOFF_FIRST_MS = 100;
    // Each attempt requests only the bytes that the previous attempts have not received.
    private static final int DOWNLOAD_ATTEMPTS = 8;

    private final FilterConfig config;
    private final Fetcher fetcher;
    // The period of polls, and the longest wait of a long poll: a third of `maxStaleness`, but between 50 ms and 25 s.
    private final long periodMs;
    private final SecureRandom random = new SecureRandom();
    private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    private final State state;
    private final Thread polls;
    private final Thread downloads;

    private final AtomicLong polled = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicLong refused = new AtomicLong();
    private final AtomicLong manifests = new AtomicLong();
    private final AtomicLong proofs = new AtomicLong();
    private final AtomicLong snapshots = new AtomicLong();
    private final AtomicLong deltas = new AtomicLong();
    private volatile Exception lastError;
    private volatile boolean closed;
    private String etag;

    // Guards `changed`. Notified when the client's status may have changed.
    private final Object changes = new Object();
    // The number of these notifications.
    private long changed;

    private FilterClient(FilterConfig config) {
        this.config = config;
        fetcher = new Fetcher(config.connectTimeout, config.silenceMax);
        periodMs = Math.min(PERIOD_MAX_MS, Math.max(PERIOD_MIN_MS, config.maxStaleness.toMillis() / 3));
        state =
                new State(
                        config.set,
                        config.maxStaleness,
                        config.clockError,
                        config.snapshotBytesMax,
                        config.overlayIdsMax);
        polls = thread("polls", this::pollForever);
        downloads = thread("downloads", this::downloadForever);
    }

    /** Starts to follow the set, and returns at once. An unreachable publisher is not an error. */
    public static FilterClient start(FilterConfig config) {
        FilterClient client = new FilterClient(config);
        client.polls.start();
        client.downloads.start();
        return client;
    }

    private Thread thread(String what, Runnable run) {
        Thread thread = new Thread(run, "edgeward-filter-" + config.set + "-" + what);
        thread.setDaemon(true);
        return thread;
    }

    /**
     * Looks up an id in any spelling that its form allows. Text that is not an id which every origin reads alike gets
     * {@code ASK}.
     */
    public Answer answer(String id) {
        Now now = config.clock.get();
        lock.readLock().lock();
        try {
            Filter filter = state.filter();
            if (filter == null || !filter.facts().form().isReadAlike(id)) {
                return Answer.ASK;
            }
            return state.answer(now, filter.facts().form().hash(id, filter.facts().seed()));
        } finally {
            lock.readLock().unlock();
        }
    }

    /** Like {@link #answer(String)}, for a number. */
    public Answer answer(long id) {
        return answer(Long.toString(id));
    }

    /** Like {@link #answer(String)}, for a UUID. */
    public Answer answer(UUID id) {
        return answer(id.toString());
    }

    /** Returns false only if no request for the id is needed, because the id does not exist. */
    public boolean mayExist(String id) {
        return answer(id) != Answer.ABSENT;
    }

    /** Like {@link #mayExist(String)}, for a number. */
    public boolean mayExist(long id) {
        return answer(id) != Answer.ABSENT;
    }

    /** Like {@link #mayExist(String)}, for a UUID. */
    public boolean mayExist(UUID id) {
        return answer(id) != Answer.ABSENT;
    }

    /** Returns the state of the client. */
    public Status status() {
        Now now = config.clock.get();
        lock.readLock().lock();
        try {
            return new Status(
                    state.isFresh(now),
                    Duration.ofMillis(state.freshForMs(now)),
                    Optional.ofNullable(state.filter()).map(Filter::facts),
                    state.overlayIds(),
                    state.serial(),
                    new Status.Counts(
                            polled.get(),
                            failed.get(),
                            refused.get(),
                            manifests.get(),
                            proofs.get(),
                            snapshots.get(),
                            deltas.get(),
                            fetcher.received()),
                    Optional.ofNullable(lastError));
        } finally {
            lock.readLock().unlock();
        }
    }

    /** Waits until the filter is fresh. Returns false if this takes longer than {@code most}. */
    public boolean waitFresh(Duration most) throws InterruptedException {
        return waitUntil(most, Status::fresh);
    }

    /**
     * Waits until a condition is true for the status. The condition is checked at once and after every change. Returns
     * false if this takes longer than {@code most}.
     */
    public boolean waitUntil(Duration most, Predicate<Status> condition) throws InterruptedException {
        long end = System.nanoTime() + most.toNanos();
        while (true) {
            long seen;
            synchronized (changes) {
                seen = changed;
            }
            if (condition.test(status())) {
                return true;
            }
            synchronized (changes) {
                while (changed == seen) {
                    long left = (end - System.nanoTime()) / 1_000_000;
                    if (left <= 0) {
                        return false;
                    }
                    changes.wait(left);
                }
            }
        }
    }

    /** Stops the background work. The filter can be queried until it is stale. */
    @Override
    public void close() {
        closed = true;
        polls.interrupt();
        downloads.interrupt();
    }

    /**
     * Polls the publisher until the client is closed. The next poll follows at once after a new manifest. Otherwise
     * polls start {@code periodMs} apart, or a backoff follows a failure.
     */
    private void pollForever() {
        int failures = 0;
        try {
            while (!closed) {
                long started = System.nanoTime();
                long pause = PAUSE_MIN_MS;
                try {
                    boolean pollAgain = poll();
                    fetchDeltas();
                    failures = 0;
                    if (!pollAgain) {
                        // A server that does not wait, such as a cache, must not be polled without a pause.
                        pause = periodMs - (System.nanoTime() - started) / 1_000_000;
                    }
                } catch (IOException | Refused | RuntimeException error) {
                    pause = noteFailure(error, ++failures);
                }
                notifyChanged();
                Thread.sleep(jittered(pause));
            }
        } catch (InterruptedException stopped) {
            // The client was closed.
        }
    }

    /** Fetches snapshots on a second thread, so that a large snapshot does not delay the polls for new ids. */
    private void downloadForever() {
        int failures = 0;
        try {
            while (!closed) {
                long seen;
                synchronized (changes) {
                    seen = changed;
                }
                Snapshot snapshot = wants().snapshot();
                if (snapshot == null) {
                    failures = 0;
                    synchronized (changes) {
                        while (changed == seen) {
                            changes.wait();
                        }
                    }
                    continue;
                }
                try {
                    fetchSnapshot(snapshot);
                    fetchDeltas();
                } catch (IOException | Refused | RuntimeException error) {
                    Thread.sleep(jittered(noteFailure(error, ++failures)));
                }
                notifyChanged();
            }
        } catch (InterruptedException stopped) {
            // The client was closed.
        }
    }

    private State.Wants wants() {
        lock.readLock().lock();
        try {
            return state.wants();
        } finally {
            lock.readLock().unlock();
        }
    }

    private interface Change {
        void make(Now now) throws Refused;
    }

    private void change(Change change, AtomicLong count) throws Refused {
        lock.writeLock().lock();
        try {
            change.make(config.clock.get());
            count.incrementAndGet();
        } finally {
            lock.writeLock().unlock();
        }
    }

    /** Polls the publisher. Returns true if the next poll should follow at once. */
    private boolean poll() throws IOException, Refused, InterruptedException {
        // With a known clock error, the date of a manifest proves that it is fresh. Otherwise the client sends a
        // challenge, and the publisher's proof answers it.
        boolean dated = config.clockError != null;
        Map<String, String> fields = new HashMap<>();
        String path = "";
        long waitMs = 0;
        if (dated) {
            if (etag != null) {
                fields.put("If-None-Match", etag);
            }
            polled.incrementAndGet();
        } else {
            byte[] bytes = new byte[16];
            random.nextBytes(bytes);
            String echo = HexFormat.of().formatHex(bytes);
            change(now -> state.challenge(now, echo), polled);
            fields.put("Edgeward-Challenge", echo);
            // RFC 9111 §5.2.1.4: caches must forward the request to the publisher.
            fields.put("Cache-Control", "no-cache");
            String position = position();
            if (position != null) {
                waitMs = periodMs;
                path = "?have=" + position + "&wait=" + waitMs;
            }
        }
        Fetcher.Response answer =
                fetcher.get(at(path), fields, new byte[0], LINE_BYTES_MAX, Duration.ofMillis(waitMs));
        if (answer.error() != null) {
            throw answer.error();
        }
        boolean pollAgain = false;
        if (answer.status() == 200) {
            Manifest manifest = Manifest.read(answer.body(), config.keys);
            change(now -> state.manifest(now, manifest), manifests);
            if (dated) {
                etag = answer.headers().firstValue("ETag").orElse(null);
            }
            pollAgain = !dated;
        } else if (answer.status() != 204 && answer.status() != 304) {
            throw new Fetcher.StatusException(answer.status());
        }
        Optional<String> line = answer.headers().firstValue("Edgeward-Proof");
        if (line.isPresent() && !dated) {
            byte[] bytes = line.get().getBytes(java.nio.charset.StandardCharsets.UTF_8);
            Proof proof = Manifest.readProof(bytes, config.keys);
            change(now -> state.proof(now, proof), proofs);
        }
        Refused tooLarge = snapshotRefused();
        if (answer.status() == 200 && tooLarge != null) {
            // Without this snapshot, the publisher answers each poll at once, so the client must pause between polls.
            noteFailure(tooLarge, 1);
            return false;
        }
        return pollAgain;
    }

    /** Returns an error if the newest snapshot is needed but larger than allowed, otherwise null. */
    private Refused snapshotRefused() {
        lock.readLock().lock();
        try {
            return state.snapshotRefused();
        } finally {
            lock.readLock().unlock();
        }
    }

    /** Returns the lineage, epoch and journal number that the client has, or null without a snapshot. */
    private String position() {
        lock.readLock().lock();
        try {
            return state.position();
        } finally {
            lock.readLock().unlock();
        }
    }

    private URI at(String path) {
        return URI.create(config.url + path);
    }

    /** Fetches the deltas that are needed now, in their order. */
    private void fetchDeltas() throws IOException, Refused, InterruptedException {
        long most = Delta.HEADER_BYTES + 8L * config.overlayIdsMax;
        for (Entry entry : wants().deltas()) {
            if (Long.compareUnsigned(entry.bytes(), most) > 0) {
                throw State.overlayFull(config.overlayIdsMax);
            }
            byte[] file;
            try {
                file = fetcher.file(at("/delta/" + entry.sha256()), entry.bytes(), 1);
            } catch (Fetcher.StatusException error) {
                if (error.status == 404) {
                    // The delta was merged meanwhile: the next manifest lists the replacement.
                    return;
                }
                throw error;
            }
            change(now -> state.delta(now, file), deltas);
        }
    }

    private void fetchSnapshot(Snapshot snapshot) throws IOException, Refused, InterruptedException {
        byte[] file = fetcher.file(at("/snapshot/" + snapshot.sha256()), snapshot.bytes(), DOWNLOAD_ATTEMPTS);
        State.Received received = State.Received.open(file);
        lock.writeLock().lock();
        try {
            // A newer manifest may have arrived meanwhile; its snapshot is needed then.
            if (snapshot.equals(state.wants().snapshot())) {
                change(now -> state.snapshot(now, received), snapshots);
            }
        } finally {
            lock.writeLock().unlock();
        }
    }

    /** Counts an error. Returns the pause in ms before the next attempt; it doubles with each consecutive failure. */
    private long noteFailure(Exception error, int failures) {
        if (closed) {
            return PAUSE_MIN_MS;
        }
        failed.incrementAndGet();
        if (error instanceof Refused) {
            refused.incrementAndGet();
        }
        lastError = error;
        try {
            config.onError.accept(error);
        } catch (RuntimeException ofTheListener) {
            // An exception of the listener must not stop the client.
        }
        notifyChanged();
        long pause = BACKOFF_FIRST_MS << (Math.min(failures, 16) - 1);
        return Math.min(pause, Math.max(BACKOFF_FIRST_MS, periodMs));
    }

    private void notifyChanged() {
        synchronized (changes) {
            changed++;
            changes.notifyAll();
        }
    }

    /** Jitter, so that many clients do not poll at the same moment. */
    private static long jittered(long pause) {
        double share = ThreadLocalRandom.current().nextDouble(0.8, 1.2);
        return Math.max(PAUSE_MIN_MS, (long) (pause * share));
    }
}
