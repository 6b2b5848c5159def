// Measures Guava's BloomFilter like the other filters: random UUIDs as text, CPU time of one thread.
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
    private static final int WARMING_PASSES = 10;
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
        int asked = Math.min(count, Integer.parseInt(arguments[3]));
        String[] present = ids(count, 1);
        String[] absent = ids(count, 2);
        // The ids of a round, few enough to stay in the CPU cache.
        String[] somePresent = Arrays.copyOf(present, asked);
        String[] someAbsent = Arrays.copyOf(absent, asked);
        double insert = Double.MAX_VALUE, ask = Double.MAX_VALUE, miss = Double.MAX_VALUE;
        int passed = 0;
        BloomFilter<CharSequence> filter = null;
        // Three more rounds for the JIT compiler to warm up; the best round counts.
        for (int round = 0; round < rounds + 3; round++) {
            filter = BloomFilter.create(Funnels.stringFunnel(StandardCharsets.UTF_8), count, rate);
            long start = THREADS.getCurrentThreadCpuTime();
            for (String id : present) {
                filter.put(id);
            }
            insert = Math.min(insert, THREADS.getCurrentThreadCpuTime() - start);
            // A round has few queries: repeat it in the first rounds, so that the JIT compiler compiles the loop.
            for (int pass = 0; pass < (round < 3 ? WARMING_PASSES : 1); pass++) {
                int found = 0;
                start = THREADS.getCurrentThreadCpuTime();
                for (String id : somePresent) {
                    found += filter.mightContain(id) ? 1 : 0;
                }
                ask = Math.min(ask, THREADS.getCurrentThreadCpuTime() - start);
                if (found != asked) {
                    throw new AssertionError("an id that was put in is not found");
                }
                start = THREADS.getCurrentThreadCpuTime();
                for (String id : someAbsent) {
                    passed += filter.mightContain(id) ? 1 : 0;
                }
                miss = Math.min(miss, THREADS.getCurrentThreadCpuTime() - start);
            }
        }
        passed = 0;
        for (String id : absent) {
            passed += filter.mightContain(id) ? 1 : 0;
        }
        for (String id : present) {
            if (!filter.mightContain(id)) {
                throw new AssertionError("an id that was put in is not found");
            }
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        filter.writeTo(bytes);
        System.out.printf(Locale.ROOT,
            "{\"name\":\"Guava (Java)\",\"insert_ns\":%f,\"insert_hashed_ns\":null,\"present_ns\":%f,"
                + "\"absent_ns\":%f,\"query_hashed_ns\":null,\"bytes\":%d,\"false_positives\":%f}%n",
            insert / count, ask / asked, miss / asked, bytes.size(), passed / (double) count);
    }
}
