import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.UUID;

import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.Session;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.io.sstable.CQLSSTableWriter;

/**
 * Creates a table of random UUIDs in a Cassandra node:
 * {@code java -cp 'jars/*' FillCassandra.java CQL_PORT JMX_PORT KEYSPACE TABLE IDS BODY_BYTES SCRATCH}.
 *
 * Writes the rows as sorted SSTable files into the folder SCRATCH, and makes the node import these files. The node
 * then has SSTables like those of a compacted table. If BODY_BYTES is 0, the rows have no body. Ten million rows take
 * half a minute of CPU time; inserts would take many minutes.
 */
public final class FillCassandra {
    public static void main(String[] arguments) throws Exception {
        int cqlPort = Integer.parseInt(arguments[0]);
        int jmxPort = Integer.parseInt(arguments[1]);
        String keyspace = arguments[2];
        String name = arguments[3];
        int ids = Integer.parseInt(arguments[4]);
        int bodyBytes = Integer.parseInt(arguments[5]);
        String table = keyspace + "." + name;
        String schema = "CREATE TABLE " + table + " (id uuid PRIMARY KEY, body blob)";

        try (Cluster cluster = Cluster.builder().addContactPoint("127.0.0.1").withPort(cqlPort).withoutMetrics()
                .withoutJMXReporting().build();
                Session session = cluster.connect()) {
            session.execute("CREATE KEYSPACE IF NOT EXISTS " + keyspace
                + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            session.execute("DROP TABLE IF EXISTS " + table);
            session.execute(schema);
        }
        // The importer requires folders with the names of the keyspace and the table.
        File folder = new File(new File(arguments[6], keyspace), name);
        if (!folder.isDirectory() && !folder.mkdirs()) throw new IllegalStateException("no folder " + folder);
        write(schema, table, ids, bodyBytes, folder);

        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + jmxPort + "/jmxrmi");
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection node = connector.getMBeanServerConnection();
            ObjectName bean = new ObjectName("org.apache.cassandra.db:type=Tables,keyspace=" + keyspace + ",table=" + name);
            // The only option that is true is `invalidateCaches`.
            Object[] options = {Set.of(folder.getAbsolutePath()), false, false, false, false, true, false, false};
            String flag = "boolean";
            String[] types = {Set.class.getName(), flag, flag, flag, flag, flag, flag, flag};
            List<?> failed = (List<?>) node.invoke(bean, "importNewSSTables", options, types);
            if (!failed.isEmpty()) throw new IllegalStateException("not imported: " + failed);
        }
        // The writer leaves threads running, so the program must exit explicitly.
        System.exit(0);
    }

    private static void write(String schema, String table, int ids, int bodyBytes, File folder) throws Exception {
        // Reads the node's cassandra.yaml. The files then have a version that the node can read.
        DatabaseDescriptor.toolInitialization();
        // The rows must be in the order of their tokens. For each token in this order, `order` has the number of the id
        // plus 1. The value 0 means that no id has the token yet.
        long[] tokens = new long[ids];
        for (int n = 0; n < ids; n++) tokens[n] = token(n);
        long[] sorted = tokens.clone();
        Arrays.sort(sorted);
        int[] order = new int[ids];
        for (int n = 0; n < ids; n++) {
            int place = Arrays.binarySearch(sorted, tokens[n]);
            if (order[place] != 0) throw new IllegalStateException("two ids have the same token; change a constant of mixed()");
            order[place] = n + 1;
        }

        CQLSSTableWriter writer = CQLSSTableWriter.builder()
            .inDirectory(folder.getPath())
            .forTable(schema)
            // Without a body, the column is left out. A null value would be a tombstone, which slows scans and causes warnings.
            .using("INSERT INTO " + table + (bodyBytes == 0 ? " (id) VALUES (?)" : " (id, body) VALUES (?, ?)"))
            .withPartitioner(Murmur3Partitioner.instance)
            .sorted()
            .build();
        for (int n : order) {
            ByteBuffer id = bytes(id(n - 1));
            if (bodyBytes == 0) writer.rawAddRow(id);
            else writer.rawAddRow(id, body(n, bodyBytes));
        }
        writer.close();
    }

    private static long token(int n) {
        return (long) Murmur3Partitioner.instance.getToken(bytes(id(n))).getTokenValue();
    }

    /** Returns the n-th id, a UUID of version 4. */
    private static UUID id(int n) {
        long high = mixed(2L * n) & ~0xf000L | 0x4000L;
        long low = mixed(2L * n + 1) & ~(3L << 62) | 2L << 62;
        return new UUID(high, low);
    }

    private static ByteBuffer bytes(UUID id) {
        return ByteBuffer.allocate(16)
            .putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).flip();
    }

    /** Returns incompressible bytes, like those of pictures or compressed text. */
    private static ByteBuffer body(int n, int bytes) {
        byte[] body = new byte[bytes];
        new java.util.Random(n).nextBytes(body);
        return ByteBuffer.wrap(body);
    }

    /** Mixes 64 bits with a bijection: SplitMix64, Steele, Lea and Flood 2014. */
    private static long mixed(long n) {
        long z = (n + 1) * 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }
}
