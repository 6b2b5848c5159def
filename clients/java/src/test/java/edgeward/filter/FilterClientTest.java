package edgeward.filter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tests the client with a publisher in this process and clocks that only the test advances. {@code trouble} names the
 * fault that the publisher injects, see {@link FakePublisher#trouble}. {@code advanceClocks} advances the monotonic
 * clock and the wall clock by milliseconds.
 */
final class FilterClientTest {
    private static final Duration TIMEOUT = Duration.ofMinutes(3);

    private FakePublisher publisher;
    private FilterClient client;

    @BeforeEach
    void startPublisher() throws IOException {
        publisher = new FakePublisher();
    }

    @AfterEach
    void closeAll() {
        client.close();
        publisher.close();
    }

    /** Starts the client with the publisher's configuration after {@code change}. */
    private void follow(UnaryOperator<FilterConfig> change) {
        client = FilterClient.start(change.apply(publisher.config()));
    }

    private void until(Predicate<Status> holds) throws InterruptedException {
        assertTrue(client.waitUntil(TIMEOUT, holds), () -> "" + client.status());
    }

    private void untilAPollFails() throws InterruptedException {
        long before = client.status().counts().failed();
        until(status -> status.counts().failed() > before);
    }

    private long firstAbsentId() {
        return LongStream.range(5000, 5100).filter(id -> client.answer(id) == Answer.ABSENT).findFirst().orElseThrow();
    }

    @Test
    void aClientAsksUntilItsFilterIsLoadedAndThenSkipsAbsentIds() throws InterruptedException {
        publisher.trouble = "dead";
        follow(config -> config);
        untilAPollFails();
        assertEquals(Answer.ASK, client.answer(7));
        publisher.trouble = "";
        until(Status::fresh);
        assertEquals(Answer.MAYBE, client.answer(7));
        assertEquals(Answer.MAYBE, client.answer("1001"), "the id is in the delta");
        long skipped = LongStream.range(5000, 5200).filter(id -> !client.mayExist(id)).count();
        assertTrue(skipped > 180, skipped + " of 200 absent ids are skipped, with 3 % false positives");
        assertEquals(3, client.status().overlayIds());
        assertEquals(1000, client.status().facts().orElseThrow().ids());
    }

    @Test
    void aClientWithoutPublisherAsksAfterMaxStalenessAndNotBefore() throws InterruptedException {
        follow(config -> config);
        until(Status::fresh);
        long id = firstAbsentId();
        publisher.trouble = "dead";
        untilAPollFails();
        // A proof keeps the filter fresh for maxStaleness (3 s) minus 100 ms, because jitter of the clocks can hide
        // elapsed time.
        long left = client.status().freshFor().toMillis();
        assertTrue(left > 0 && left <= 2_900, left + " ms");
        publisher.advanceClocks(left, left);
        assertEquals(Answer.ABSENT, client.answer(id), "at the deadline");
        publisher.advanceClocks(1, 1);
        assertEquals(Answer.ASK, client.answer(id), "after the deadline");
        publisher.trouble = "";
        until(Status::fresh);
    }

    @Test
    void aWallClockThatIsSteppedBackDoesNotExtendTheDeadline() throws InterruptedException {
        follow(config -> config);
        until(Status::fresh);
        publisher.trouble = "dead";
        untilAPollFails();
        publisher.advanceClocks(3_001, -3_600_000);
        assertFalse(client.status().fresh());
    }

    @ParameterizedTest
    @ValueSource(strings = {"forged", "old"})
    void forgedOrOldDataIsRefusedAndTheLastValidFilterStays(String trouble) throws InterruptedException {
        follow(config -> config);
        until(Status::fresh);
        publisher.trouble = trouble;
        until(status -> status.counts().refused() >= 2);
        assertEquals(1000, client.status().serial());
        assertEquals(7, client.status().facts().orElseThrow().epoch());
        assertEquals(Answer.MAYBE, client.answer(7));
        publisher.advanceClocks(60_000, 60_000);
        assertEquals(Answer.ASK, client.answer(5001), "the filter becomes stale");
    }

    @ParameterizedTest
    @ValueSource(strings = {"cut", "flipped", "flood"})
    void aBrokenSnapshotIsRefusedAndALaterValidOneIsUsed(String trouble) throws InterruptedException {
        publisher.trouble = trouble;
        follow(config -> config);
        until(status -> status.counts().failed() >= 2);
        assertTrue(client.status().facts().isEmpty());
        assertTrue(client.status().counts().bytes() < 10_000_000, "a flood is cut off");
        publisher.trouble = "";
        until(Status::fresh);
    }

    @Test
    void aBrokenDownloadIsResumed() throws InterruptedException {
        publisher.trouble = "broken";
        follow(config -> config);
        until(status -> status.facts().isPresent());
        long downloads = publisher.requests.stream().filter(path -> path.contains("/snapshot/")).count();
        // The snapshot has 1093 bytes, and the publisher closes each connection after 300 bytes.
        assertEquals(4, downloads);
    }

    @Test
    void aListenerThatThrowsDoesNotStopTheClient() throws InterruptedException {
        publisher.trouble = "dead";
        follow(
                config ->
                        config.onError(
                                error -> {
                                    throw new IllegalStateException("not listening");
                                }));
        until(status -> status.counts().failed() >= 2);
        publisher.trouble = "";
        until(Status::fresh);
    }

    @Test
    void aSnapshotLargerThanAllowedIsNotFetched() throws InterruptedException {
        follow(config -> config.snapshotBytesMax(1000));
        until(status -> status.counts().polls() >= 3);
        assertTrue(publisher.requests.stream().noneMatch(path -> path.contains("/snapshot/")));
        assertEquals(Answer.ASK, client.answer(5001));
    }

    @Test
    void theDateOfAManifestProvesFreshnessIfTheClockErrorIsGuaranteed() throws InterruptedException {
        follow(config -> config.clockError(Duration.ofMillis(200)));
        until(Status::fresh);
        assertEquals(0, client.status().counts().proofs());
    }

    @Test
    void wrongConfigurationsAreRefused() {
        follow(config -> config);
        Keys keys = Keys.trustTransport();
        for (String wrong : new String[] {"http://a", "http://a/", "http://a/b?c", "http://u@a/b", "ftp://a/b", "a/b"}) {
            URI url = URI.create(wrong);
            assertThrows(
                    IllegalArgumentException.class, () -> new FilterConfig(url, keys, TIMEOUT), () -> wrong);
        }
        URI url = URI.create("http://a/sets/b");
        assertThrows(IllegalArgumentException.class, () -> new FilterConfig(url, keys, Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> Keys.of("00"));
    }
}
