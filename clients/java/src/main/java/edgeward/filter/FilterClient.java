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
 * Follows a published set on two threads of its own, and answers at once. Safe for use by several threads.
 *
 * <p>No id that was committed more than {@code maxStaleness} ago is ever skipped: the answer is {@code ASK}
 * until there is a filter, and whenever it cannot be shown to be fresh. What is forged, broken, too large or
 * older than what is here is refused and counted; the last good filter stays.
 */
public final class FilterClient implements AutoCloseable {
    private static final int LINE_BYTES_MAX = 64 << 10;
    private static final long PAUSE_MIN_MS = 10;
    private static final long PERIOD_MIN_MS = 50;
    // What proxies on the way bear without a byte.
    private static final long PERIOD_MAX_MS = 25_000;
    private static final long BACKOFF_FIRST_MS = 100;
    // With ranges each goes on where the last ended.
    private static final int DOWNLOAD_ATTEMPTS = 8;

    private final FilterConfig config;
    private final Fetcher fetcher;
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
    private String tag;

    // Notified whenever something came.
    private final Object changes = new Object();
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

    /** Begins to follow; returns at once. That the publisher cannot be reached is no error. */
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

    /** What to do about an id, in any spelling that its form allows. */
    public Answer answer(String id) {
        Now now = config.clock.get();
        lock.readLock().lock();
        try {
            Filter filter = state.filter();
            if (filter == null) {
                return Answer.ASK;
            }
            return state.answer(now, filter.facts().form().hash(id, filter.facts().seed()));
        } finally {
            lock.readLock().unlock();
        }
    }

    /** The same for a number. */
    public Answer answer(long id) {
        return answer(Long.toString(id));
    }

    /** The same for a UUID. */
    public Answer answer(UUID id) {
        return answer(id.toString());
    }

    /** False only if a request for the id can be skipped. */
    public boolean mayExist(String id) {
        return answer(id) != Answer.ABSENT;
    }

    /** The same for a number. */
    public boolean mayExist(long id) {
        return answer(id) != Answer.ABSENT;
    }

    /** The same for a UUID. */
    public boolean mayExist(UUID id) {
        return answer(id) != Answer.ABSENT;
    }

    /** How it is doing. */
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

    /** Waits until absent ids are skipped; false if that takes too long. */
    public boolean waitFresh(Duration most) throws InterruptedException {
        return waitUntil(most, Status::fresh);
    }

    /** Waits until something is true of the status, which is looked at whenever something came. */
    public boolean waitUntil(Duration most, Predicate<Status> holds) throws InterruptedException {
        long end = System.nanoTime() + most.toNanos();
        while (true) {
            long seen;
            synchronized (changes) {
                seen = changed;
            }
            if (holds.test(status())) {
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

    /** Ends the background. The filter answers until it is stale. */
    @Override
    public void close() {
        closed = true;
        polls.interrupt();
        downloads.interrupt();
    }


    /** Asks for news with one long request after the other, a third of {@code maxStaleness} each. */
    private void pollForever() {
        int failures = 0;
        try {
            while (!closed) {
                long begun = System.nanoTime();
                long pause = PAUSE_MIN_MS;
                try {
                    boolean news = poll();
                    fetchDeltas();
                    failures = 0;
                    if (!news) {
                        // A server that did not wait, such as a cache, is not asked without end.
                        pause = periodMs - (System.nanoTime() - begun) / 1_000_000;
                    }
                } catch (IOException | Refused | RuntimeException error) {
                    pause = noteFailure(error, ++failures);
                }
                tell();
                Thread.sleep(jittered(pause));
            }
        } catch (InterruptedException stopped) {
            // Somebody closed the client.
        }
    }

    /** Fetches snapshots beside that, so that a large one keeps nobody from hearing of new ids. */
    private void downloadForever() {
        int failures = 0;
        try {
            while (!closed) {
                long seen;
                synchronized (changes) {
                    seen = changed;
                }
                Snapshot named = wants().snapshot();
                if (named == null) {
                    failures = 0;
                    synchronized (changes) {
                        while (changed == seen) {
                            changes.wait();
                        }
                    }
                    continue;
                }
                try {
                    fetchSnapshot(named);
                    fetchDeltas();
                } catch (IOException | Refused | RuntimeException error) {
                    Thread.sleep(jittered(noteFailure(error, ++failures)));
                }
                tell();
            }
        } catch (InterruptedException stopped) {
            // Somebody closed the client.
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

    /** Asks what there is; true if there may be more at once. */
    private boolean poll() throws IOException, Refused, InterruptedException {
        boolean dated = config.clockError != null;
        Map<String, String> fields = new HashMap<>();
        String beneath = "";
        long patienceMs = 0;
        if (dated) {
            if (tag != null) {
                fields.put("If-None-Match", tag);
            }
            polled.incrementAndGet();
        } else {
            byte[] bytes = new byte[16];
            random.nextBytes(bytes);
            String echo = HexFormat.of().formatHex(bytes);
            change(now -> state.challenge(now, echo), polled);
            fields.put("Edgeward-Challenge", echo);
            // RFC 9111 §5.2.1.4: a cache on the way is to ask the publisher.
            fields.put("Cache-Control", "no-cache");
            String position = position();
            if (position != null) {
                patienceMs = periodMs;
                beneath = "?have=" + position + "&wait=" + patienceMs;
            }
        }
        Fetcher.Response answer =
                fetcher.get(at(beneath), fields, new byte[0], LINE_BYTES_MAX, Duration.ofMillis(patienceMs));
        if (answer.error() != null) {
            throw answer.error();
        }
        boolean news = false;
        if (answer.status() == 200) {
            Manifest manifest = Manifest.read(answer.body(), config.keys);
            change(now -> state.manifest(now, manifest), manifests);
            if (dated) {
                tag = answer.headers().firstValue("ETag").orElse(null);
            }
            news = !dated;
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
            // The publisher answers at once while its snapshot is another: it is not asked without end.
            noteFailure(tooLarge, 1);
            return false;
        }
        return news;
    }

    private Refused snapshotRefused() {
        lock.readLock().lock();
        try {
            return state.snapshotRefused();
        } finally {
            lock.readLock().unlock();
        }
    }

    private String position() {
        lock.readLock().lock();
        try {
            return state.position();
        } finally {
            lock.readLock().unlock();
        }
    }

    private URI at(String beneath) {
        return URI.create(config.url + beneath);
    }

    /** Fetches the deltas that are wanted now, in their order. */
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
                    // Merged away meanwhile: the next manifest names what took its place.
                    return;
                }
                throw error;
            }
            change(now -> state.delta(now, file), deltas);
        }
    }

    private void fetchSnapshot(Snapshot named) throws IOException, Refused, InterruptedException {
        byte[] file = fetcher.file(at("/snapshot/" + named.sha256()), named.bytes(), DOWNLOAD_ATTEMPTS);
        State.Received received = State.Received.open(file);
        lock.writeLock().lock();
        try {
            // Another manifest may have come meanwhile; what it names is wanted now.
            if (named.equals(state.wants().snapshot())) {
                change(now -> state.snapshot(now, received), snapshots);
            }
        } finally {
            lock.writeLock().unlock();
        }
    }

    /** Notes what went wrong, and says how long to wait. */
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
            // Whoever listens does not end what he listens to.
        }
        tell();
        long pause = BACKOFF_FIRST_MS << (Math.min(failures, 16) - 1);
        return Math.min(pause, Math.max(BACKOFF_FIRST_MS, periodMs));
    }

    private void tell() {
        synchronized (changes) {
            changed++;
            changes.notifyAll();
        }
    }

    /** A little more or less, so that many clients do not ask at the same moment. */
    private static long jittered(long pause) {
        double share = ThreadLocalRandom.current().nextDouble(0.8, 1.2);
        return Math.max(PAUSE_MIN_MS, (long) (pause * share));
    }
}
