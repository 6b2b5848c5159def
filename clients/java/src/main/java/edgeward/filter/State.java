package edgeward.filter;

import edgeward.filter.Manifest.Entry;
import edgeward.filter.Manifest.Proof;
import edgeward.filter.Manifest.Snapshot;
import edgeward.filter.Refused.Reason;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;

/**
 * Decides when a client may rely on its filter. It does no input or output and reads no clock: the caller passes
 * documents, files and times. Not thread-safe.
 *
 * <p><b>The guarantee</b>: for an id that was committed more than {@code maxStaleness} ago, the answer is never
 * ABSENT. The answer is {@code ABSENT} only before a deadline. A deadline comes from a statement of the publisher
 * whose snapshot and ids have all arrived. The statement is a proof or the date of a manifest. A proof contains
 * random bytes of this client's request, so it was made after the request. A date counts only if the operator
 * guarantees the clocks (docs/explanation/id-filter.md, "Freshness"). The scripts in vectors/filter compare this
 * class with the Rust client.
 */
final class State {
    // The largest number of stored challenges for which no proof has arrived.
    private static final int CHALLENGES_MAX = 8;
    // The largest number of stored statements that refer to ids that the client does not have yet.
    private static final int PENDING_MAX = 16;
    // The largest number of remembered deltas: up to 128 of the newest manifest, and as many of earlier manifests.
    private static final int LISTED_MAX = 256;
    // The largest difference between two clocks that counts as a rounding error.
    static final long JITTER_MS = 50;
    // The latest date of a manifest that is used, in ms since 1970.
    private static final long DATE_MAX = 1L << 62;

    private final String set;
    private final long maxStalenessMs;
    private final Duration clockError;
    private final long snapshotBytesMax;
    private final int overlayIdsMax;

    private final Clock clock = new Clock();
    private CurrentFilter current;
    private Manifest newest;
    private final ArrayDeque<ListedDelta> listed = new ArrayDeque<>();
    private final ArrayDeque<Challenge> challenges = new ArrayDeque<>();
    private final List<Statement> pending = new ArrayList<>();
    private long deadline;
    // True if deadline is set.
    private boolean hasDeadline;
    private Highest highest = new Highest(0, 0, 0, 0);

    /** The highest numbers of all trusted statements. {@code epochMin} and {@code head} belong to {@code lineage}. */
    private record Highest(long serial, long lineage, long epochMin, long head) {}

    /**
     * The snapshot in use, and the ids that were added after it. The snapshot has the ids of the journal up to
     * {@code base}. The only element of {@code applied} is the journal number up to which the client has the ids.
     */
    private record CurrentFilter(
            long lineage,
            String sha256,
            long epoch,
            long base,
            long[] applied,
            Filter filter,
            IdTable overlay) {
        long upTo() {
            return applied[0];
        }
    }

    private record ListedDelta(long lineage, Entry entry) {}

    private record Challenge(String echo, long sent) {}

    /**
     * "All ids committed {@code maxStaleness} before the deadline are in a snapshot of {@code epochMin} or later,
     * together with the journal up to {@code head}."
     */
    private record Statement(long lineage, long epochMin, long head, long deadline) {}

    /** The files to fetch: a snapshot or null, and deltas in their order. */
    record Wants(Snapshot snapshot, List<Entry> deltas) {}

    /** A downloaded snapshot: its hash, and the filter or the reason why the file is not a filter. */
    record Received(String sha256, Filter filter, String error) {
        static Received open(byte[] file) {
            String sha256 = Keys.sha256(file);
            try {
                return new Received(sha256, Filter.open(file), null);
            } catch (FilterException error) {
                return new Received(sha256, null, error.getMessage());
            }
        }
    }

    /** {@code clockError}: the largest difference from the publisher's clock that is guaranteed, or null. */
    State(String set, Duration maxStaleness, Duration clockError, long snapshotBytesMax, int overlayIdsMax) {
        this.set = set;
        this.maxStalenessMs = maxStaleness.toMillis();
        this.clockError = clockError;
        this.snapshotBytesMax = snapshotBytesMax;
        this.overlayIdsMax = overlayIdsMax;
    }

    /** Looks up the hash of an id. */
    Answer answer(Now now, long hash) {
        if (!isFresh(now)) {
            return Answer.ASK;
        }
        boolean mayExist = current.filter.mayContainHash(hash) || current.overlay.has(hash);
        return mayExist ? Answer.MAYBE : Answer.ABSENT;
    }

    boolean isFresh(Now now) {
        return current != null && hasDeadline && clock.moment(now) <= deadline;
    }

    long freshForMs(Now now) {
        return hasDeadline ? Math.max(0, deadline - clock.moment(now)) : 0;
    }

    /** The snapshot in use, or null. */
    Filter filter() {
        return current == null ? null : current.filter;
    }

    int overlayIds() {
        return current == null ? 0 : current.overlay.size();
    }

    /** The value of the query parameter {@code have}: lineage, epoch and journal number. Null without a snapshot. */
    String position() {
        if (current == null) {
            return null;
        }
        return Long.toUnsignedString(current.lineage)
                + "-"
                + Long.toUnsignedString(current.epoch)
                + "-"
                + Long.toUnsignedString(current.upTo());
    }

    /** The serial number of the newest manifest, or 0. */
    long serial() {
        return newest == null ? 0 : newest.serial();
    }

    /** Updates the time. Every method that changes the state also updates the time. */
    void observe(Now now) {
        clock.observe(now);
    }

    /** Records a challenge: 16 random bytes in hex. The request with the challenge must not be sent before this time. */
    void challenge(Now now, String echo) {
        long sent = clock.observe(now);
        if (challenges.size() == CHALLENGES_MAX) {
            challenges.removeFirst();
        }
        challenges.addLast(new Challenge(echo.toLowerCase(Locale.ROOT), sent));
    }

    /** Processes a manifest that {@link Manifest#read} has verified. */
    void manifest(Now now, Manifest manifest) throws Refused {
        clock.observe(now);
        checkSet(manifest.set());
        checkSerial(manifest.serial());
        if (newest != null && newest.serial() == manifest.serial() && !newest.equals(manifest)) {
            throw contradiction();
        }
        checkNumbers(manifest.lineage(), manifest.epochMin(), manifest.head());
        if (newest != null && newest.lineage() == manifest.lineage()) {
            checkNotBelow("epoch", manifest.snapshot().epoch(), newest.snapshot().epoch());
            checkNotBelow("base", manifest.snapshot().base(), newest.snapshot().base());
        }
        highest = new Highest(manifest.serial(), manifest.lineage(), manifest.epochMin(), manifest.head());
        considerDate(now, manifest);
        for (Entry entry : manifest.deltas()) {
            ListedDelta one = new ListedDelta(manifest.lineage(), entry);
            if (!listed.contains(one)) {
                if (listed.size() == LISTED_MAX) {
                    listed.removeFirst();
                }
                listed.addLast(one);
            }
        }
        adopt(manifest);
        newest = manifest;
        applyStatements();
    }

    /**
     * Moves the snapshot in use to a new lineage, if the manifest lists the same file. This happens after the
     * publisher was restarted. The added ids and the deadline stay. The next snapshot may replace the added ids: its
     * scan began after the restart, so it has all ids committed before the restart.
     */
    private void adopt(Manifest manifest) {
        Snapshot named = manifest.snapshot();
        if (current != null
                && current.lineage != manifest.lineage()
                && current.sha256.equals(named.sha256())
                && current.epoch == named.epoch()) {
            current =
                    new CurrentFilter(
                            manifest.lineage(),
                            current.sha256,
                            current.epoch,
                            named.base(),
                            new long[] {named.base()},
                            current.filter,
                            current.overlay);
        }
    }

    private void checkSerial(long serial) throws Refused {
        if (Long.compareUnsigned(serial, highest.serial) < 0) {
            throw new Refused(
                    Reason.REPLAYED,
                    "manifest " + Long.toUnsignedString(serial) + " is older than "
                            + Long.toUnsignedString(highest.serial) + ", which was received before");
        }
    }

    /** Refuses a statement with smaller numbers than an earlier one of the same lineage. */
    private void checkNumbers(long lineage, long epochMin, long head) throws Refused {
        if (lineage == highest.lineage) {
            checkNotBelow("head", head, highest.head);
            checkNotBelow("epoch_min", epochMin, highest.epochMin);
        }
    }

    private static void checkNotBelow(String what, long found, long newest) throws Refused {
        if (Long.compareUnsigned(found, newest) < 0) {
            throw new Refused(
                    Reason.FALLING,
                    "the publisher's " + what + " decreased from " + Long.toUnsignedString(newest) + " to "
                            + Long.toUnsignedString(found) + " within a lineage");
        }
    }

    /** Processes a proof that {@link Manifest#readProof} has verified. */
    void proof(Now now, Proof proof) throws Refused {
        clock.observe(now);
        checkSet(proof.set());
        String echo = proof.echo().toLowerCase(Locale.ROOT);
        for (Iterator<Challenge> iterator = challenges.iterator(); iterator.hasNext(); ) {
            Challenge one = iterator.next();
            if (!one.echo.equals(echo)) {
                continue;
            }
            iterator.remove();
            checkSerial(proof.serial());
            checkNumbers(proof.lineage(), proof.epochMin(), proof.head());
            highest = new Highest(proof.serial(), proof.lineage(), proof.epochMin(), proof.head());
            long lag = proof.lagMs();
            if (Long.compareUnsigned(lag, maxStalenessMs) <= 0) {
                state(proof.lineage(), proof.epochMin(), proof.head(), one.sent + maxStalenessMs - lag);
            }
            applyStatements();
            return;
        }
        throw new Refused(Reason.NOT_ASKED, "the proof matches no request in progress");
    }

    /** Processes a snapshot that a manifest lists. */
    void snapshot(Now now, Received received) throws Refused {
        clock.observe(now);
        if (newest == null) {
            throw unlisted();
        }
        Snapshot named = newest.snapshot();
        long lineage = newest.lineage();
        if (!fits(named)) {
            throw tooLarge(named);
        }
        if (!received.sha256.equals(named.sha256())) {
            throw unlisted();
        }
        Filter filter = received.filter;
        if (filter == null) {
            throw new Refused(Reason.BROKEN, received.error);
        }
        if (filter.facts().epoch() != named.epoch()) {
            throw contradiction();
        }
        long applied = named.base();
        IdTable overlay = new IdTable();
        CurrentFilter old = current;
        if (old != null && old.lineage == lineage) {
            boolean isNewer =
                    Long.compareUnsigned(old.epoch, named.epoch()) < 0
                            && Long.compareUnsigned(old.base, named.base()) <= 0
                            && old.filter.facts().seed() == filter.facts().seed();
            if (!isNewer) {
                throw new Refused(Reason.OLDER, "the snapshot is not newer than the one in use");
            }
            // The old overlay has all ids from the new base up to the old position.
            if (Long.compareUnsigned(old.upTo(), applied) > 0) {
                applied = old.upTo();
            }
            overlay = old.overlay;
            overlay.forgetUpTo(named.base());
        } else {
            // The deadline was computed for another lineage.
            hasDeadline = false;
        }
        current =
                new CurrentFilter(
                        lineage,
                        received.sha256,
                        named.epoch(),
                        named.base(),
                        new long[] {applied},
                        filter,
                        overlay);
        applyStatements();
    }

    /** Processes a delta that a manifest lists. */
    void delta(Now now, byte[] file) throws Refused {
        clock.observe(now);
        String name = Keys.sha256(file);
        ListedDelta named =
                listed.stream().filter(one -> one.entry.sha256().equals(name)).findFirst().orElse(null);
        if (named == null) {
            throw unlisted();
        }
        Delta delta;
        try {
            delta = Delta.read(file);
        } catch (FilterException error) {
            throw new Refused(Reason.BROKEN, error.getMessage());
        }
        Entry entry = named.entry;
        if (current == null || current.lineage != named.lineage) {
            throw early();
        }
        boolean matches =
                delta.lineage() == named.lineage
                        && delta.from() == entry.from()
                        && delta.to() == entry.to()
                        && delta.seed() == current.filter.facts().seed();
        if (!matches) {
            throw contradiction();
        }
        if (Long.compareUnsigned(entry.from(), current.upTo()) > 0) {
            throw early();
        }
        if (Long.compareUnsigned(entry.to(), current.upTo()) <= 0) {
            // The delta is a duplicate, or another delta has the same ids.
            return;
        }
        if (delta.ids().length > overlayIdsMax - current.overlay.size()) {
            throw overlayFull(overlayIdsMax);
        }
        for (long id : delta.ids()) {
            current.overlay.add(id, entry.to());
        }
        current.applied[0] = entry.to();
        applyStatements();
    }

    /** An error if the newest snapshot is needed but is larger than allowed, otherwise null. */
    Refused snapshotRefused() {
        boolean refused = newest != null && isWanted(newest) && !fits(newest.snapshot());
        return refused ? tooLarge(newest.snapshot()) : null;
    }

    private boolean isWanted(Manifest manifest) {
        return current == null
                || current.lineage != manifest.lineage()
                || Long.compareUnsigned(current.epoch, manifest.snapshot().epoch()) < 0;
    }

    private boolean fits(Snapshot named) {
        return Long.compareUnsigned(named.bytes(), snapshotBytesMax) <= 0;
    }

    private Refused tooLarge(Snapshot named) {
        return new Refused(
                Reason.TOO_LARGE,
                "a snapshot of " + Long.toUnsignedString(named.bytes()) + " bytes is larger than the "
                        + snapshotBytesMax + " allowed");
    }

    Wants wants() {
        if (newest == null) {
            return new Wants(null, List.of());
        }
        boolean same = current != null && current.lineage == newest.lineage();
        Snapshot named = newest.snapshot();
        Snapshot snapshot = isWanted(newest) && fits(named) ? named : null;
        if (!same) {
            return new Wants(snapshot, List.of());
        }
        long upTo = current.upTo();
        List<Entry> missing =
                newest.deltas().stream().filter(one -> Long.compareUnsigned(one.to(), upTo) > 0).toList();
        if (!missing.isEmpty() && Long.compareUnsigned(missing.get(0).from(), upTo) > 0) {
            // The journal no longer reaches back to the client's position: a snapshot is needed.
            missing = List.of();
        }
        return new Wants(snapshot, missing);
    }

    /** Adds the statement of a manifest's date, if the operator guarantees the largest error of the clocks. */
    private void considerDate(Now now, Manifest manifest) {
        if (clockError == null || Long.compareUnsigned(manifest.coversMs(), DATE_MAX) > 0) {
            return;
        }
        long moment = clock.moment(now);
        long age = moment - manifest.coversMs() + clockError.toMillis();
        // A negative age means that the clocks differ by more than the operator guarantees. The date is ignored.
        if (age >= 0 && age <= maxStalenessMs) {
            state(manifest.lineage(), manifest.epochMin(), manifest.head(), moment + maxStalenessMs - age);
        }
    }

    /**
     * Stores a statement until its ids have arrived. Its deadline is reduced, because jitter can make {@link Clock} run
     * behind by 2 * JITTER_MS.
     */
    private void state(long lineage, long epochMin, long head, long until) {
        Statement statement = new Statement(lineage, epochMin, head, until - 2 * JITTER_MS);
        for (int n = 0; n < pending.size(); n++) {
            Statement known = pending.get(n);
            if (known.lineage == lineage && known.epochMin == epochMin && known.head == head) {
                if (known.deadline < statement.deadline) {
                    pending.set(n, statement);
                }
                return;
            }
        }
        if (pending.size() == PENDING_MAX) {
            // The oldest will be complete first, and the newest gives the longest deadline, so one in the middle is dropped.
            pending.remove(PENDING_MAX / 2);
        }
        pending.add(statement);
    }

    /** Applies the statements whose ids have all arrived. */
    private void applyStatements() {
        if (current == null) {
            return;
        }
        pending.removeIf(
                statement -> {
                    boolean fulfilled =
                            statement.lineage == current.lineage
                                    && Long.compareUnsigned(statement.epochMin, current.epoch) <= 0
                                    && Long.compareUnsigned(statement.head, current.upTo()) <= 0;
                    if (fulfilled && (!hasDeadline || statement.deadline > deadline)) {
                        hasDeadline = true;
                        deadline = statement.deadline;
                    }
                    return fulfilled;
                });
    }

    private void checkSet(String name) throws Refused {
        if (!name.equals(set)) {
            String start = name.substring(0, Math.min(80, name.length()));
            throw new Refused(Reason.OTHER_SET, "this manifest or proof is for the set `" + start + "`");
        }
    }

    private static Refused contradiction() {
        return new Refused(Reason.CONTRADICTION, "the content differs from an earlier statement of the publisher");
    }

    private static Refused unlisted() {
        return new Refused(Reason.UNLISTED, "no manifest lists a file with this SHA-256");
    }

    private static Refused early() {
        return new Refused(Reason.EARLY, "the delta was received before an earlier one");
    }

    static Refused overlayFull(int most) {
        return new Refused(
                Reason.OVERLAY_FULL,
                "more than " + most + " ids were added since the snapshot; waiting for the next snapshot");
    }

    /**
     * One time from two clocks that may both be wrong. It was {@code anchored} at the anchor, and has advanced with the
     * faster clock since then. If the clocks diverge by more than JITTER_MS, the anchor is set to the present.
     * Otherwise a step back of the wall clock would hide the time of a later suspend, during which the monotonic clock
     * may stop.
     */
    static final class Clock {
        private Now anchor;
        private long anchored;

        long observe(Now now) {
            long moment = moment(now);
            boolean diverged =
                    anchor == null
                            || Math.abs(
                                            (now.wallMs() - anchor.wallMs())
                                                    - (now.monotonicMs() - anchor.monotonicMs()))
                                    > JITTER_MS;
            if (diverged) {
                anchor = now;
                anchored = moment;
            }
            return moment;
        }

        long moment(Now now) {
            if (anchor == null) {
                return now.wallMs();
            }
            return anchored
                    + Math.max(now.monotonicMs() - anchor.monotonicMs(), now.wallMs() - anchor.wallMs());
        }
    }
}
