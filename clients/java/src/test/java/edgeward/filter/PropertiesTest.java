package edgeward.filter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Tests properties that must hold for random input. */
final class PropertiesTest {
    @Test
    void noIdIsMissedInAnySpelling() throws FilterException {
        Random roll = Vectors.dice();
        for (Map<String, Object> one : Vectors.table("answers.json")) {
            Filter filter = Filter.open(Vectors.file((String) one.get("file")));
            long ids = (long) one.get("ids");
            for (int round = 0; ids > 0 && round < 10_000; round++) {
                String id = respell(roll, filter.facts().form(), (long) (roll.nextDouble() * ids));
                assertTrue(filter.mayContain(id), one.get("file") + " reports id " + id + " as absent");
            }
        }
    }

    /** Returns a random spelling of the n-th id. */
    private static String respell(Random roll, IdForm form, long n) {
        String id = Vectors.spelling(form, n);
        return switch (form) {
            case TEXT -> id;
            case INTEGER -> (roll.nextBoolean() ? "+" : "") + "0".repeat(roll.nextInt(4)) + n;
            case UUID -> {
                // `id` is a UUID in braces.
                StringBuilder mixed = new StringBuilder();
                for (char letter : id.substring(1, 37).toCharArray()) {
                    String text = String.valueOf(letter);
                    mixed.append(roll.nextBoolean() ? text.toUpperCase(Locale.ROOT) : text.toLowerCase(Locale.ROOT));
                }
                String bare = mixed.toString();
                yield List.of(bare, bare.replace("-", ""), "{" + bare + "}", "URN:uuid:" + bare).get(roll.nextInt(4));
            }
        };
    }

    @Test
    void longSpellingsInBytesHaveTheHashOfTheSameText() {
        for (String id : List.of("0".repeat(70) + "7", "-" + "0".repeat(200) + "12", "9".repeat(100))) {
            byte[] bytes = id.getBytes(StandardCharsets.UTF_8);
            // The second argument of `hash` is the seed.
            assertEquals(IdForm.INTEGER.hash(id, 0), IdForm.INTEGER.hash(bytes, 0), id);
        }
    }

    @Test
    void invalidSpellingsAreHashedUnchanged() {
        for (String wrong :
                List.of("", "+", "--1", "1.0", "{}", "{", "urn:uuid:", "0x10", "1e3", "١", " 7", "9".repeat(40),
                        // A dotless i, which Java treats as an i if it ignores case.
                        "urn:uuıd:550e8400e29b41d4a716446655440000")) {
            assertEquals(IdForm.TEXT.hash(wrong, 0), IdForm.INTEGER.hash(wrong, 0), wrong);
            assertEquals(IdForm.TEXT.hash(wrong, 0), IdForm.UUID.hash(wrong, 0), wrong);
        }
        // The largest integer id is 2^127 - 1. A larger number is hashed as text.
        String largest = "+170141183460469231731687303715884105727";
        assertNotEquals(IdForm.TEXT.hash(largest, 0), IdForm.INTEGER.hash(largest, 0));
        String beyond = "+170141183460469231731687303715884105728";
        assertEquals(IdForm.TEXT.hash(beyond, 0), IdForm.INTEGER.hash(beyond, 0));
    }

    @Test
    void randomHashesMatchAtMostAtTheConfiguredRate() throws FilterException {
        Random roll = Vectors.dice();
        for (Map<String, Object> one : Vectors.table("answers.json")) {
            if ((long) one.get("ids") < 1000) {
                continue;
            }
            Filter filter = Filter.open(Vectors.file((String) one.get("file")));
            int probes = 200_000;
            int passed = 0;
            for (int n = 0; n < probes; n++) {
                // java.util.Random has only 48 bits of state, so mix its numbers with n.
                passed += filter.mayContainHash(Filter.mix(roll.nextLong(), n)) ? 1 : 0;
            }
            // The limit is five standard deviations above the expected number of matches. The additional 3 matter only
            // if this number is small.
            double expected = probes * filter.facts().rate();
            int most = (int) (expected + 5 * Math.sqrt(expected) + 3);
            assertTrue(passed <= most, one.get("file") + ": " + passed + " of " + probes);
        }
    }

    @Test
    void idTableAgreesWithAHashMap() {
        Random roll = Vectors.dice();
        IdTable table = new IdTable();
        // The journal number of each added id.
        Map<Long, Long> oracle = new HashMap<>();
        for (int round = 0; round < 20_000; round++) {
            long id = roll.nextInt(3) == 0 ? roll.nextInt(50) : roll.nextLong();
            long number = 1 + roll.nextInt(1000);
            table.add(id, number);
            oracle.merge(id, number, Math::max);
            if (roll.nextInt(2000) == 0) {
                long snapshotBase = roll.nextInt(900);
                table.forgetUpTo(snapshotBase);
                oracle.values().removeIf(known -> known <= snapshotBase);
            }
            assertEquals(oracle.size(), table.size());
        }
        for (long id : oracle.keySet()) {
            assertTrue(table.has(id));
        }
        for (long id = 0; id < 100; id++) {
            assertEquals(oracle.containsKey(id), table.has(id));
        }
    }
}
