package edgeward.filter;

import java.net.URI;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** The configuration of a client. The constructor sets the required values; every other setting has a default. */
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
     * Follows a set, with defaults for all other settings.
     *
     * @param url the URL of the set, such as {@code https://ids.example/sets/resource}
     * @param keys the public keys of the publisher, or trust in any server that answers
     * @param maxStaleness the longest time for which the client may report a committed id as absent
     */
    public FilterConfig(URI url, Keys keys, Duration maxStaleness) {
        String text = url.toString().replaceAll("/+$", "");
        boolean http = "http".equals(url.getScheme()) || "https".equals(url.getScheme());
        boolean onlyPath = url.getRawQuery() == null && url.getRawFragment() == null && url.getRawUserInfo() == null;
        if (!http || !onlyPath || url.getHost() == null || url.getRawPath().replace("/", "").isEmpty()) {
            throw new IllegalArgumentException(url + " is not the URL of a set; write https://HOST/sets/NAME");
        }
        if (maxStaleness.isNegative() || maxStaleness.isZero()) {
            throw new IllegalArgumentException("maxStaleness must be greater than zero");
        }
        this.url = URI.create(text);
        this.set = text.substring(text.lastIndexOf('/') + 1);
        this.keys = Objects.requireNonNull(keys);
        this.maxStaleness = maxStaleness;
    }

    /**
     * The largest difference between this machine's wall clock and the publisher's. Set it only if the operator
     * guarantees it. The client then computes the age of a manifest from the manifest's date, so manifests may come
     * from any cache. By default, the client accepts no date, and requests signed proofs from the publisher.
     */
    public FilterConfig clockError(Duration largest) {
        clockError = largest;
        return this;
    }

    /** The largest snapshot that is fetched, in bytes. Default 1 GiB. */
    public FilterConfig snapshotBytesMax(int bytes) {
        snapshotBytesMax = bytes;
        return this;
    }

    /**
     * The largest number of ids that were added after the snapshot and are kept in memory. If there are more, the
     * client waits for the next snapshot. Default 2^20.
     */
    public FilterConfig overlayIdsMax(int ids) {
        overlayIdsMax = ids;
        return this;
    }

    /** The timeout for opening a connection. Default 5 s. */
    public FilterConfig connectTimeout(Duration timeout) {
        connectTimeout = timeout;
        return this;
    }

    /** The timeout for the start of a response, and between two parts of it. Default 10 s. */
    public FilterConfig silenceMax(Duration timeout) {
        silenceMax = timeout;
        return this;
    }

    /** Sets the source of the time, for tests. Default: the clocks of this machine. */
    public FilterConfig clock(Supplier<Now> clock) {
        this.clock = Objects.requireNonNull(clock);
        return this;
    }

    /** Called with each error; the client continues. */
    public FilterConfig onError(Consumer<Exception> listener) {
        onError = Objects.requireNonNull(listener);
        return this;
    }
}
