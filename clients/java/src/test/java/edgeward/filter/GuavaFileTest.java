package edgeward.filter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Random;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that Guava reads the files that edgeward writes, and that GuavaFile fetches a file again after a change. */
final class GuavaFileTest {
    private static final Funnel<CharSequence> UTF8 = Funnels.stringFunnel(StandardCharsets.UTF_8);
    private static final Duration MAX_STALENESS = Duration.ofSeconds(1000);
    private static final String ABSENT = "no such id";

    @Test
    void guavaReadsTheGoldenFiles() throws IOException, FilterException {
        assertReads(Vectors.file("guava-utf8.bloom"), UTF8, Integer::toString);
        assertReads(Vectors.file("guava-unencoded-chars.bloom"), Funnels.unencodedCharsFunnel(), Integer::toString);
        assertReads(Vectors.file("guava-long.bloom"), Funnels.longFunnel(), Long::valueOf);
    }

    private static <T> void assertReads(byte[] file, Funnel<? super T> funnel, IntFunction<T> spelling)
            throws IOException, FilterException {
        BloomFilter<T> filter = GuavaFile.read(file, funnel);
        for (int n = 0; n < 1000; n++) {
            assertTrue(filter.mightContain(spelling.apply(n)), "id " + n + " is reported as absent");
        }
        int falsePositives = 0;
        for (int n = 1000; n < 101_000; n++) {
            falsePositives += filter.mightContain(spelling.apply(n)) ? 1 : 0;
        }
        assertTrue(
                falsePositives > 800 && falsePositives < 1200,
                falsePositives + " false positives in 100,000 lookups at 1 %");
    }

    /** Reads files that `edgeward filter build --guava` builds from random ids. */
    @Test
    void guavaReadsFilesThatEdgewardBuilds(@TempDir Path folder) throws Exception {
        String program = System.getenv("EDGEWARD");
        Assumptions.assumeTrue(program != null, "EDGEWARD names no program");
        Random random = Vectors.dice();
        List<String> texts = random.ints(20_000).mapToObj(n -> "ä/" + n).distinct().toList();
        List<Long> numbers = random.longs(20_000).distinct().boxed().toList();
        Path ids = folder.resolve("ids.txt");
        Path out = folder.resolve("ids.bloom");
        Files.write(ids, texts);
        build(program, ids, out, "utf8", "text");
        BloomFilter<CharSequence> ofTexts = GuavaFile.read(Files.readAllBytes(out), UTF8);
        assertTrue(texts.stream().allMatch(ofTexts::mightContain));
        assertEquals(0.01, ofTexts.expectedFpp(), 0.001);
        build(program, ids, out, "unencoded-chars", "text");
        BloomFilter<CharSequence> ofChars = GuavaFile.read(Files.readAllBytes(out), Funnels.unencodedCharsFunnel());
        assertTrue(texts.stream().allMatch(ofChars::mightContain));
        Files.write(ids, numbers.stream().map(String::valueOf).toList());
        build(program, ids, out, "long", "integer");
        BloomFilter<Long> ofNumbers = GuavaFile.read(Files.readAllBytes(out), Funnels.longFunnel());
        assertTrue(numbers.stream().allMatch(ofNumbers::mightContain));
    }

    private static void build(String program, Path ids, Path out, String funnel, String form) throws Exception {
        Files.deleteIfExists(out);
        Process build =
                new ProcessBuilder(
                                program, "filter", "build", "--source", ids.toString(), "--ids", form, "--fpr", "1%",
                                "--guava", funnel, "-o", out.toString())
                        .inheritIO()
                        .start();
        assertEquals(0, build.waitFor());
    }

    @Test
    void truncatedFilesAndForgedHeadersAreRefused() {
        byte[] whole = Vectors.file("guava-utf8.bloom");
        for (int cut = 0; cut < whole.length; cut++) {
            byte[] less = java.util.Arrays.copyOf(whole, cut);
            assertThrows(FilterException.class, () -> GuavaFile.read(less, UTF8));
        }
        // The header's bytes: 0 is the strategy, 1 the number of hash functions, 2 to 5 the length in words of 8 bytes.
        // The forged byte 2 claims a length of gigabytes.
        for (int at : new int[] {0, 1, 2, 5}) {
            byte[] forged = whole.clone();
            forged[at] = (byte) (at == 1 ? 0 : 0x7f);
            assertThrows(FilterException.class, () -> GuavaFile.read(forged, UTF8));
        }
    }

    @Test
    void aFileIsUsedUntilItIsTooOldAndFetchedOnlyAfterAChange() throws Exception {
        try (Server server = new Server(); GuavaFile<CharSequence> file = server.follow()) {
            assertEquals(Answer.ASK, file.answer("7"), "the client has no file yet");
            file.check();
            assertEquals(Answer.MAYBE, file.answer("7"));
            assertFalse(file.mayExist(ABSENT));
            file.check();
            assertEquals(1, server.sent, "the second answer was 304");

            // The file was 100 s old when it was fetched, so it may be used for 900 s more. The test checks at 870 s,
            // because the real duration of the test is added to the age. `Now` has a monotonic clock and a wall clock.
            server.now = new Now(870_000, 5_870_000);
            assertFalse(file.mayExist(ABSENT));
            file.check();
            assertFalse(file.mayExist(ABSENT), "a check that finds the same file does not change the age");
            server.now = new Now(900_001, 5_900_001);
            assertEquals(Answer.ASK, file.answer(ABSENT), "the file is too old by the client's clocks");
            server.now = new Now(900_001, 1);
            assertEquals(Answer.ASK, file.answer(ABSENT), "a step back of the wall clock does not extend the use");

            server.write(Vectors.file("guava-utf8.bloom"), 0);
            file.check();
            assertFalse(file.mayExist(ABSENT), "a new file is used");
            assertEquals(2, server.sent);
        }
    }

    @Test
    void aBrokenFileIsRefusedAndTheLastGoodOneStays() throws Exception {
        try (Server server = new Server(); GuavaFile<CharSequence> file = server.follow()) {
            file.check();
            byte[] forged = Vectors.file("guava-utf8.bloom");
            forged[2] = 0x7f;
            server.write(forged, 0);
            assertThrows(FilterException.class, file::check);
            assertFalse(file.mayExist(ABSENT));
            assertTrue(file.mayExist("7"));
        }
    }

    @Test
    void theAgeHeaderOfACachedResponseCounts() throws Exception {
        try (Server server = new Server(); GuavaFile<CharSequence> file = server.follow()) {
            server.ageSeconds = 901;
            file.check();
            assertEquals(Answer.ASK, file.answer(ABSENT));
        }
    }

    @Test
    void aFileOfUnknownAgeIsRefused() throws Exception {
        try (Server server = new Server(); GuavaFile<CharSequence> file = server.follow()) {
            server.modified = null;
            assertThrows(IOException.class, file::check);
            assertEquals(Answer.ASK, file.answer(ABSENT));
        }
    }

    @Test
    void aFileOnDiskIsUsedUntilItIsTooOld(@TempDir Path folder) throws Exception {
        Path path = folder.resolve("ids.bloom");
        Files.write(path, Vectors.file("guava-utf8.bloom"));
        long written = Files.getLastModifiedTime(path).toMillis();
        Now[] now = {new Now(0, written + 100_000)};
        GuavaFile<CharSequence> file = GuavaFile.manual(path.toUri(), UTF8, MAX_STALENESS, () -> now[0]);
        file.check();
        assertFalse(file.mayExist(ABSENT));
        // The client's deadline is 100 ms early, because jitter of its clocks can hide elapsed time.
        now[0] = new Now(899_900, written + 999_900);
        assertFalse(file.mayExist(ABSENT));
        now[0] = new Now(899_901, written + 999_901);
        assertTrue(file.mayExist(ABSENT));
    }

    /** A web server with one file, 100 s old, and clocks that only the test advances. */
    private static final class Server implements AutoCloseable {
        private final HttpServer server;
        private byte[] file = Vectors.file("guava-utf8.bloom");
        private int version;
        // The client computes the file's age: Date minus Last-Modified, plus Age. The JDK's server adds Date.
        volatile Instant modified = Instant.now().minusSeconds(100);
        volatile long ageSeconds;
        volatile int sent;
        volatile Now now = new Now(0, 5_000_000);

        Server() throws IOException {
            server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
            server.createContext("/", this::answer);
            server.start();
        }

        GuavaFile<CharSequence> follow() {
            URI at = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/ids.bloom");
            return GuavaFile.manual(at, UTF8, MAX_STALENESS, () -> now);
        }

        synchronized void write(byte[] file, long secondsAgo) {
            this.file = file;
            version++;
            modified = Instant.now().minusSeconds(secondsAgo);
        }

        private synchronized void answer(HttpExchange exchange) throws IOException {
            Headers fields = exchange.getResponseHeaders();
            String tag = "\"" + version + "\"";
            fields.set("ETag", tag);
            if (modified != null) {
                DateTimeFormatter form = DateTimeFormatter.RFC_1123_DATE_TIME.withZone(ZoneOffset.UTC);
                fields.set("Last-Modified", form.format(modified));
            }
            if (ageSeconds > 0) {
                fields.set("Age", Long.toString(ageSeconds));
            }
            boolean known = tag.equals(exchange.getRequestHeaders().getFirst("If-None-Match"));
            exchange.sendResponseHeaders(known ? 304 : 200, known ? -1 : file.length);
            if (!known) {
                sent++;
                exchange.getResponseBody().write(file);
            }
            exchange.close();
        }

        @Override
        public void close() {
            server.stop(0);
        }
    }
}
