// Writes Guava's BloomFilter of the ids 0 to 999 with a false-positive rate of 1 % to three files: the ids as UTF-8
// text, as UTF-16 text, and as 64-bit integers. With the argument `read` instead of `write`, it reads the three files.
// `cargo xtask vectors --guava JARS` compiles and runs the program for both; the written files are committed.
import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

public final class Golden {
    private static final int IDS = 1000;

    private interface Spelling<T> {
        T of(int id);
    }

    private static <T> void write(Path file, Funnel<? super T> funnel, Spelling<T> spelling) throws IOException {
        BloomFilter<T> filter = BloomFilter.create(funnel, IDS, 0.01);
        for (int id = 0; id < IDS; id++) {
            filter.put(spelling.of(id));
        }
        try (FileOutputStream out = new FileOutputStream(file.toFile())) {
            filter.writeTo(out);
        }
    }

    // Reads a filter and queries every id. A test of edgeward checks that edgeward writes files with the same bytes.
    private static <T> void read(Path file, Funnel<T> funnel, Spelling<? extends T> spelling) throws IOException {
        try (FileInputStream in = new FileInputStream(file.toFile())) {
            BloomFilter<T> filter = BloomFilter.readFrom(in, funnel);
            for (int id = 0; id < IDS; id++) {
                if (!filter.mightContain(spelling.of(id))) {
                    throw new AssertionError(file + " lacks " + id);
                }
            }
            int falsePositives = 0;
            for (int id = IDS; id < 101 * IDS; id++) {
                falsePositives += filter.mightContain(spelling.of(id)) ? 1 : 0;
            }
            // There are 100 * IDS absent ids, so the quotient is a percentage.
            double percent = falsePositives / (1.0 * IDS);
            System.out.printf("%s: all ids found, false positives %.3f %%%n", file.getFileName(), percent);
        }
    }

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[1]);
        Path utf8 = folder.resolve("guava-utf8.bloom");
        Path chars = folder.resolve("guava-unencoded-chars.bloom");
        Path longs = folder.resolve("guava-long.bloom");
        if (arguments[0].equals("write")) {
            write(utf8, Funnels.stringFunnel(StandardCharsets.UTF_8), id -> Integer.toString(id));
            write(chars, Funnels.unencodedCharsFunnel(), id -> Integer.toString(id));
            write(longs, Funnels.longFunnel(), id -> (long) id);
        } else {
            read(utf8, Funnels.stringFunnel(StandardCharsets.UTF_8), id -> Integer.toString(id));
            read(chars, Funnels.unencodedCharsFunnel(), id -> Integer.toString(id));
            read(longs, Funnels.longFunnel(), id -> (long) id);
        }
    }
}
