package edgeward.filter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests the client with the golden files. */
final class VectorsTest {
    @Test
    void hashesOfAllLengthsAndSpellingsMatchTheFormat() {
        for (Map<String, Object> one : Vectors.table("hashes.json")) {
            IdForm form = Vectors.form(one.get("form"));
            String id = (String) one.get("spelling");
            long seed = Long.parseUnsignedLong((String) one.get("seed"));
            long expected = Long.parseUnsignedLong((String) one.get("hash"), 16);
            assertEquals(expected, form.hash(id, seed), () -> form + " " + id);
            assertEquals(expected, form.hash(id.getBytes(StandardCharsets.UTF_8), seed), () -> form + " " + id);
        }
    }

    @Test
    void filtersOfEveryConstructionAnswerAsTheFormatSays() throws FilterException {
        for (Map<String, Object> one : Vectors.table("answers.json")) {
            String name = (String) one.get("file");
            Filter filter = Filter.open(Vectors.file(name));
            IdForm form = Vectors.form(one.get("form"));
            assertEquals(form, filter.facts().form());
            StringBuilder found = new StringBuilder();
            for (Object id : (List<?>) one.get("asked")) {
                found.append(filter.mayContain((String) id) ? '1' : '0');
            }
            assertEquals(one.get("maybe"), found.toString(), name);
            for (long n = 0; n < (long) one.get("ids"); n++) {
                assertTrue(filter.mayContain(Vectors.spelling(form, n)), name + " reports id " + n + " as absent");
            }
        }
    }

    /** Returns a call that opens a file as a delta or a filter. */
    private static Executable opening(String what, byte[] file) {
        return () -> {
            if (what.startsWith("delta")) {
                Delta.read(file);
            } else {
                Filter.open(file);
            }
        };
    }

    @Test
    void textThatIsNoIdIsNeverAbsent() throws Exception {
        Map<String, String> files =
                Map.of("text", "static-text-seeded.ewf", "uuid", "static-uuid.ewf", "integer", "static-integer.ewf");
        for (Map<String, Object> one : Vectors.table("not-ids.json")) {
            IdForm form = Vectors.form(one.get("form"));
            Filter filter = Filter.open(Vectors.file(files.get(one.get("form"))));
            for (Object id : (List<?>) one.get("asked")) {
                assertTrue(filter.mayContain((String) id), () -> form + " " + id);
            }
            for (Object id : (List<?>) one.get("ids")) {
                assertTrue(form.isReadAlike((String) id), () -> form + " " + id);
            }
        }
        // Bytes are an exact id: nothing is removed from them.
        Filter texts = Filter.open(Vectors.file(files.get("text")));
        assertTrue(texts.mayContain("k2;v=1"));
        assertFalse(texts.mayContain("k2;v=1".getBytes(StandardCharsets.UTF_8)));
    }

    @Test
    void truncatedFlippedAndForgedFilesAreRefused() {
        for (Map<String, Object> one : Vectors.table("refused-files.json")) {
            byte[] file = HexFormat.of().parseHex((String) one.get("bytes"));
            String what = (String) one.get("what");
            assertThrows(FilterException.class, opening(what, file), () -> what + ": " + one.get("why"));
        }
    }

    @Test
    void eachTruncationAndEachFlippedBitIsDetected() throws Throwable {
        for (String name : List.of("static-small.ewf", "updatable-small.ewf", "delta.ewd")) {
            byte[] whole = Vectors.file(name);
            opening(name, whole).execute();
            for (int cut = 0; cut < whole.length; cut++) {
                assertThrows(FilterException.class, opening(name, Arrays.copyOf(whole, cut)), name);
            }
            for (int bit = 0; bit < 8 * whole.length; bit++) {
                byte[] flipped = whole.clone();
                flipped[bit / 8] ^= (byte) (1 << (bit % 8));
                assertThrows(FilterException.class, opening(name, flipped), name);
            }
        }
    }

    @Test
    void signedLinesAreTrustedAndForgedOnesAreRefused() throws Refused {
        Keys keys = Keys.of(Vectors.line("key.txt"));
        Manifest manifest = Manifest.read(Vectors.file("manifest.txt"), keys);
        assertEquals(100, manifest.serial());
        assertEquals(Keys.sha256(Vectors.file("delta.ewd")), manifest.deltas().get(0).sha256());
        assertEquals(250, Manifest.readProof(Vectors.file("proof.txt"), keys).lagMs());
        // Without keys the client accepts signed and unsigned lines.
        String signed = Vectors.line("manifest.txt");
        String unsigned = "unsigned " + signed.substring(signed.indexOf('{'));
        for (String believed : List.of(unsigned, signed)) {
            byte[] line = believed.getBytes(StandardCharsets.UTF_8);
            assertEquals(manifest, Manifest.read(line, Keys.trustTransport()));
        }
        for (Map<String, Object> one : Vectors.table("refused-lines.json")) {
            byte[] line = ((String) one.get("line")).getBytes(StandardCharsets.UTF_8);
            Executable read =
                    one.get("what").equals("proof")
                            ? () -> Manifest.readProof(line, keys)
                            : () -> Manifest.read(line, keys);
            Refused refused = assertThrows(Refused.class, read, () -> "" + one.get("why"));
            assertEquals(Refused.Reason.UNBELIEVABLE, refused.reason());
        }
    }

    @Test
    void clientsBehaveAsTheScriptsSpecify() {
        for (Map<String, Object> script : Vectors.table("scripts.json")) {
            new Life(script).run();
        }
    }

    /**
     * Runs random scripts ("lives"), one per line of the file that the environment variable LIVES names. {@code cargo
     * xtask lives} writes this file.
     */
    @Test
    @SuppressWarnings("unchecked")
    void noIdIsMissedInRandomScripts() throws IOException {
        String path = System.getenv("LIVES");
        assumeTrue(path != null && !path.isEmpty(), "LIVES names no file");
        int lives = 0;
        try (BufferedReader scripts = Files.newBufferedReader(Path.of(path))) {
            for (String line = scripts.readLine(); line != null; line = scripts.readLine()) {
                new Life((Map<String, Object>) Json.parse(line)).run();
                lives++;
            }
        }
        assertTrue(lives > 0, path + " has no lives");
    }

    /** One script and the client that executes it. */
    private static final class Life {
        private final Map<?, ?> client;
        private final List<?> documents;
        private final List<byte[]> files;
        private final Map<String, Long> fileIndex = new HashMap<>();
        private final List<?> steps;
        private final Keys keys;
        private State state;

        Life(Map<String, Object> script) {
            client = (Map<?, ?>) script.get("client");
            documents = (List<?>) script.get("documents");
            files = ((List<?>) script.get("files")).stream().map(hex -> HexFormat.of().parseHex((String) hex)).toList();
            for (byte[] file : files) {
                fileIndex.put(Keys.sha256(file), (long) fileIndex.size());
            }
            steps = (List<?>) script.get("steps");
            keys = Keys.of((String) client.get("key"));
            state = start();
        }

        private State start() {
            Long error = (Long) client.get("clock_error_ms");
            return new State(
                    (String) client.get("set"),
                    Duration.ofMillis((long) client.get("max_staleness_ms")),
                    error == null ? null : Duration.ofMillis(error),
                    (long) client.get("snapshot_bytes_max"),
                    Math.toIntExact((long) client.get("overlay_ids_max")));
        }

        /**
         * Executes the steps. The items of a step are: monotonic time in ms, wall-clock time in ms, input, argument,
         * outcome, remaining fresh time in ms, answers, snapshot to fetch, deltas to fetch, and in random scripts the
         * ids that must not be absent.
         */
        void run() {
            for (Object one : steps) {
                List<?> step = (List<?>) one;
                String where = "seed " + client.get("seed") + ", " + step;
                Now now = new Now((long) step.get(0), (long) step.get(1));
                String found = "taken";
                if (step.get(2).equals("restart")) {
                    state = start();
                }
                try {
                    act(now, (String) step.get(2), step.get(3));
                } catch (Refused refused) {
                    found = refused.reason().name().toLowerCase(Locale.ROOT).replace('_', '-');
                    state.observe(now);
                }
                assertEquals(step.get(4), found, where);
                assertEquals(step.get(5), state.freshForMs(now), where);
                StringBuilder letters = new StringBuilder();
                for (Object id : (List<?>) client.get("asked")) {
                    letters.append(
                            switch (answer(now, (String) id)) {
                                case ABSENT -> 'a';
                                case MAYBE -> 'm';
                                case ASK -> '?';
                            });
                }
                // Item 9 has '!' for each id that was committed more than maxStaleness ago and must not be absent.
                String must = step.size() > 9 ? (String) step.get(9) : "";
                for (int n = 0; n < must.length(); n++) {
                    boolean hidden = must.charAt(n) == '!' && letters.charAt(n) == 'a';
                    assertFalse(hidden, "id " + n + " is reported as absent: " + where);
                }
                // The script has 'n' (no filter) and 's' (stale filter) for the two reasons of the answer ASK.
                assertEquals(((String) step.get(6)).replaceAll("[ns]", "?"), letters.toString(), where);
                State.Wants wants = state.wants();
                Long snapshot = wants.snapshot() == null ? null : fileIndex.get(wants.snapshot().sha256());
                assertEquals(step.get(7), snapshot, where);
                assertEquals(
                        step.get(8),
                        wants.deltas().stream().map(entry -> fileIndex.get(entry.sha256())).toList(),
                        where);
            }
        }

        private Answer answer(Now now, String id) {
            Filter filter = state.filter();
            if (filter == null) {
                return Answer.ASK;
            }
            return state.answer(now, filter.facts().form().hash(id, filter.facts().seed()));
        }

        private void act(Now now, String what, Object at) throws Refused {
            switch (what) {
                case "manifest" -> state.manifest(now, Manifest.read(document(at), keys));
                case "proof" -> state.proof(now, Manifest.readProof(document(at), keys));
                case "challenge" -> state.challenge(now, (String) at);
                case "snapshot" -> state.snapshot(now, State.Received.open(file(at)));
                case "delta" -> state.delta(now, file(at));
                case "observe" -> state.observe(now);
                default -> {}
            }
        }

        private byte[] document(Object at) {
            return ((String) documents.get(Math.toIntExact((long) at))).getBytes(StandardCharsets.UTF_8);
        }

        private byte[] file(Object at) {
            return files.get(Math.toIntExact((long) at));
        }
    }
}
