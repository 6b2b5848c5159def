package edgeward.filter;

import java.time.Duration;
import java.util.Optional;

/**
 * How a client is doing.
 *
 * @param fresh whether absent ids are skipped now
 * @param freshFor and for how much longer if nothing more is learnt
 * @param facts of the snapshot in use
 * @param overlayIds added ids beside it
 * @param serial the newest manifest's number; unsigned
 * @param counts what happened so far
 * @param lastError what went wrong last
 */
public record Status(
        boolean fresh,
        Duration freshFor,
        Optional<Filter.Facts> facts,
        int overlayIds,
        long serial,
        Counts counts,
        Optional<Exception> lastError) {
    /** What happened since a client started; {@code refused} is part of {@code failed}. */
    public record Counts(
            long polls, long failed, long refused, long manifests, long proofs, long snapshots, long deltas, long bytes) {}
}
