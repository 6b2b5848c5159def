// Measures Guava's BloomFilter in the way in which `edgeward bench-filter` measures its other filters: random UUIDs as
// text, CPU time of one thread. The arguments are the number of ids, the false-positive rate, the number of rounds, and
// the number of queries per round.
import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.ByteArrayOutputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.Random;
import java.util.UUID;

public final class BenchGuava {
    private static final int WARMUP_PASSES = 10;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static String[] ids(int count, long seed) {
        Random random = new Random(seed);
        String[] ids = new String[count];
        for (int n = 0; n < count; n++) {
            ids[n] = new UUID(random.nextLong(), random.nextLong()).toString();
        }
        return ids;
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        double rate = Double.parseDouble(arguments[1]);
        int rounds = Integer.parseInt(arguments[2]);
        int queries = Math.min(count, Integer.parseInt(arguments[3]));
        String[] present = ids(count, 1);
        String[] absent = ids(count, 2);
        // Each round queries the same ids. They are few, so that they stay in the CPU cache.
        String[] somePresent = Arrays.copyOf(present, queries);
        String[] someAbsent = Arrays.copyOf(absent, queries);
        double insertNanos = Double.MAX_VALUE, presentNanos = Double.MAX_VALUE, absentNanos = Double.MAX_VALUE;
        int falsePositives = 0;
        BloomFilter<CharSequence> filter = null;
        // The first three rounds let the JIT compiler compile the code. The fastest round is reported.
        for (int round = 0; round < rounds + 3; round++) {
            filter = BloomFilter.create(Funnels.stringFunnel(StandardCharsets.UTF_8), count, rate);
            long start = THREADS.getCurrentThreadCpuTime();
            for (String id : present) {
                filter.put(id);
            }
            insertNanos = Math.min(insertNanos, THREADS.getCurrentThreadCpuTime() - start);
            // A round has few queries. The first rounds repeat them, so that the JIT compiler compiles the loop.
            for (int pass = 0; pass < (round < 3 ? WARMUP_PASSES : 1); pass++) {
                int found = 0;
                start = THREADS.getCurrentThreadCpuTime();
                for (String id : somePresent) {
                    found += filter.mightContain(id) ? 1 : 0;
                }
                presentNanos = Math.min(presentNanos, THREADS.getCurrentThreadCpuTime() - start);
                if (found != queries) {
                    throw new AssertionError("an inserted id is not found");
                }
                start = THREADS.getCurrentThreadCpuTime();
                // This sum is only for the JIT compiler, which might remove queries without a use of their results.
                for (String id : someAbsent) {
                    falsePositives += filter.mightContain(id) ? 1 : 0;
                }
                absentNanos = Math.min(absentNanos, THREADS.getCurrentThreadCpuTime() - start);
            }
        }
        falsePositives = 0;
        for (String id : absent) {
            falsePositives += filter.mightContain(id) ? 1 : 0;
        }
        for (String id : present) {
            if (!filter.mightContain(id)) {
                throw new AssertionError("an inserted id is not found");
            }
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        filter.writeTo(bytes);
        System.out.printf(Locale.ROOT,
            "{\"name\":\"Guava (Java)\",\"insert_ns\":%f,\"insert_hashed_ns\":null,\"present_ns\":%f,"
                + "\"absent_ns\":%f,\"query_hashed_ns\":null,\"bytes\":%d,\"false_positives\":%f}%n",
            insertNanos / count, presentNanos / queries, absentNanos / queries, bytes.size(), falsePositives / (double) count);
    }
}
