package edgeward.filter;

import java.net.URI;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Which set to follow, whom to believe, and how old an answer may be, with every default filled in. */
public final class FilterConfig {
    final URI url;
    final String set;
    final Keys keys;
    final Duration maxStaleness;
    Duration clockError;
    int snapshotBytesMax = 1 << 30;
    int overlayIdsMax = 1 << 20;
    Duration connectTimeout = Duration.ofSeconds(5);
    Duration silenceMax = Duration.ofSeconds(10);
    Supplier<Now> clock = Now::ofThisMachine;
    Consumer<Exception> onError = error -> {};

    /**
     * Follows a set, all else by default.
     *
     * @param url as {@code https://ids.example/sets/resource}
     * @param maxStaleness an id that was committed longer ago than this is never skipped
     */
    public FilterConfig(URI url, Keys keys, Duration maxStaleness) {
        String text = url.toString().replaceAll("/+$", "");
        boolean http = "http".equals(url.getScheme()) || "https".equals(url.getScheme());
        boolean bare = url.getRawQuery() == null && url.getRawFragment() == null && url.getRawUserInfo() == null;
        if (!http || !bare || url.getHost() == null || url.getRawPath().replace("/", "").isEmpty()) {
            throw new IllegalArgumentException(url + " is no set; write https://HOST/sets/NAME");
        }
        if (maxStaleness.isNegative() || maxStaleness.isZero()) {
            throw new IllegalArgumentException("maxStaleness must be more than nothing");
        }
        this.url = URI.create(text);
        this.set = text.substring(text.lastIndexOf('/') + 1);
        this.keys = Objects.requireNonNull(keys);
        this.maxStaleness = maxStaleness;
    }

    /**
     * How far this machine's wall clock and the publisher's can be apart, if somebody answers for that: then
     * manifests may come out of any cache, and count by their date.
     */
    public FilterConfig clockError(Duration most) {
        clockError = most;
        return this;
    }

    /** Snapshots above this size are refused before they are fetched. Default 1 GiB. */
    public FilterConfig snapshotBytesMax(int bytes) {
        snapshotBytesMax = bytes;
        return this;
    }

    /** Added ids kept beside the snapshot. Default 2^20. */
    public FilterConfig overlayIdsMax(int ids) {
        overlayIdsMax = ids;
        return this;
    }

    /** For a connection. Default 5 s. */
    public FilterConfig connectTimeout(Duration most) {
        connectTimeout = most;
        return this;
    }

    /** For an answer to begin, and between two of its pieces. Default 10 s. */
    public FilterConfig silenceMax(Duration most) {
        silenceMax = most;
        return this;
    }

    /** In place of the machine's clocks. */
    public FilterConfig clock(Supplier<Now> clock) {
        this.clock = Objects.requireNonNull(clock);
        return this;
    }

    /** Is told what goes wrong; the client goes on. */
    public FilterConfig onError(Consumer<Exception> listener) {
        onError = Objects.requireNonNull(listener);
        return this;
    }
}
