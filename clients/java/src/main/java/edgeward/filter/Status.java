package edgeward.filter;

import java.time.Duration;
import java.util.Optional;

/**
 * The state of a client. A manifest is the publisher's signed list of the snapshot and its deltas. A proof is the
 * publisher's signed response to a random challenge of the client.
 *
 * @param fresh true while the filter is fresh, so that the client may answer {@code ABSENT}
 * @param freshFor the time until the filter becomes stale, if no further manifest or proof arrives
 * @param facts the header of the snapshot in use
 * @param overlayIds the number of ids that deltas added since the snapshot
 * @param serial the serial number of the newest manifest, an unsigned 64-bit number
 * @param counts the counters of the client
 * @param lastError the error of the last poll or download that failed
 */
public record Status(
        boolean fresh,
        Duration freshFor,
        Optional<Filter.Facts> facts,
        int overlayIds,
        long serial,
        Counts counts,
        Optional<Exception> lastError) {
    /**
     * The counters since the client started.
     *
     * @param polls requests for the manifest
     * @param failed polls and downloads that failed
     * @param refused failures because a response was forged, corrupt, too large or outdated; part of {@code failed}
     * @param manifests accepted manifests
     * @param proofs accepted proofs
     * @param snapshots accepted snapshots
     * @param deltas accepted deltas
     * @param bytes body bytes received
     */
    public record Counts(
            long polls, long failed, long refused, long manifests, long proofs, long snapshots, long deltas, long bytes) {}
}
