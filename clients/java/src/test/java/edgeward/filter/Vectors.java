package edgeward.filter;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;

/** Reads the golden files, which the clients in all languages must read in the same way. */
final class Vectors {
    private static final Path FOLDER = Path.of("..", "..", "vectors", "filter");

    private Vectors() {}

    /** Reads a golden file as bytes. */
    static byte[] file(String name) {
        try {
            return Files.readAllBytes(FOLDER.resolve(name));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Reads a golden file that is one line of text. */
    static String line(String name) {
        return new String(file(name), StandardCharsets.UTF_8).strip();
    }

    /** Reads a golden file that is a JSON list of objects. */
    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> table(String name) {
        return (List<Map<String, Object>>) Json.parse(new String(file(name), StandardCharsets.UTF_8));
    }

    /** Returns the form that a table names: text, uuid or integer. */
    static IdForm form(Object name) {
        return IdForm.valueOf(name.toString().toUpperCase(Locale.ROOT));
    }

    /**
     * Returns the n-th id of a form. Integers and UUIDs are not in their canonical spelling. The Rust program that
     * writes the golden files (crates/filter/filter/tests/vectors) spells the ids in the same way.
     */
    static String spelling(IdForm form, long n) {
        return switch (form) {
            case TEXT -> "résumé/" + n;
            case INTEGER -> "+00" + n;
            case UUID -> {
                long high = n * 0x9e3779b97f4a7c15L;
                String digits = String.format("%016X%016x", high, Long.rotateLeft(high, 32));
                yield String.format(
                        "{%s-%s-%s-%s-%s}",
                        digits.substring(0, 8),
                        digits.substring(8, 12),
                        digits.substring(12, 16),
                        digits.substring(16, 20),
                        digits.substring(20));
            }
        };
    }

    /** Returns a random generator and prints its seed. The environment variable SEED sets the seed. */
    static Random dice() {
        String given = System.getenv("SEED");
        long seed = given == null || given.isEmpty() ? System.nanoTime() : Long.parseLong(given);
        System.out.println("SEED=" + seed);
        return new Random(seed);
    }
}
