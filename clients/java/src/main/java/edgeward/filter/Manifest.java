package edgeward.filter;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A publisher's list of the files that together contain every id up to journal number {@code head}. All numbers are
 * unsigned. {@code serial} is the number of the manifest; each new manifest has a higher one. {@code lineage} is the
 * random number of the publisher's journal, new at each start. {@code coversMs} counts milliseconds since 1970: each id
 * that was committed until then is in the journal up to {@code head}, or in every snapshot from epoch {@code epochMin}
 * on.
 */
record Manifest(
        String set,
        long serial,
        long lineage,
        long coversMs,
        long epochMin,
        long head,
        Snapshot snapshot,
        List<Entry> deltas) {
    private static final int DELTAS_MAX = 128;

    /**
     * The entry of a snapshot: a filter file with the sequence number {@code epoch} and the size {@code bytes}. It
     * contains all ids up to journal number {@code base}.
     */
    record Snapshot(long epoch, long base, long bytes, String sha256) {}

    /** The entry of a delta: a file with the ids after journal number {@code from}, up to and including {@code to}. */
    record Entry(long from, long to, long bytes, String sha256) {}

    /**
     * A publisher's answer to one client's challenge, which {@code echo} repeats. {@code serial} is the number of the
     * newest manifest. Each id that was committed at least
     * {@code lagMs} milliseconds before the proof is in the journal up to {@code head}, or in every snapshot from epoch
     * {@code epochMin} on.
     */
    record Proof(String set, long serial, long lineage, long epochMin, long head, long lagMs, String echo) {}

    static Manifest read(byte[] line, Keys keys) throws Refused {
        String json = keys.verify(line, "edgeward filter manifest 1");
        Fields all =
                new Fields(
                        json, "format", "set", "serial", "lineage", "covers_ms", "epoch_min", "head", "snapshot",
                        "deltas");
        Fields named = new Fields(all.value("snapshot", Map.class), "epoch", "base", "bytes", "sha256");
        Snapshot snapshot =
                new Snapshot(named.number("epoch"), named.number("base"), named.number("bytes"), named.digest());
        List<?> listed = all.value("deltas", List.class);
        if (listed.size() > DELTAS_MAX) {
            throw Keys.unbelievable("the manifest lists " + listed.size() + " deltas, more than " + DELTAS_MAX);
        }
        List<Entry> deltas = new ArrayList<>();
        for (Object entry : listed) {
            Fields delta = new Fields(entry, "from", "to", "bytes", "sha256");
            deltas.add(
                    new Entry(delta.number("from"), delta.number("to"), delta.number("bytes"), delta.digest()));
        }
        Manifest manifest =
                new Manifest(
                        all.value("set", String.class),
                        all.number("serial"),
                        all.number("lineage"),
                        all.number("covers_ms"),
                        all.number("epoch_min"),
                        all.number("head"),
                        snapshot,
                        List.copyOf(deltas));
        manifest.check();
        return manifest;
    }

    /**
     * Refuses a manifest whose snapshot and deltas do not cover the journal up to the head, or whose snapshot is older
     * than {@code epochMin}.
     */
    private void check() throws Refused {
        long first = deltas.isEmpty() ? head : deltas.get(0).from;
        long end = first;
        for (Entry delta : deltas) {
            if (Long.compareUnsigned(delta.from, delta.to) >= 0 || delta.from != end) {
                throw gap(delta.from);
            }
            end = delta.to;
        }
        if (end != head
                || Long.compareUnsigned(first, snapshot.base) > 0
                || Long.compareUnsigned(snapshot.base, head) > 0) {
            throw gap(first);
        }
        if (Long.compareUnsigned(epochMin, snapshot.epoch) > 0) {
            throw Keys.unbelievable(
                    "the manifest requires snapshot " + Long.toUnsignedString(epochMin) + ", and its newest is "
                            + Long.toUnsignedString(snapshot.epoch));
        }
    }

    private static Refused gap(long at) {
        return Keys.unbelievable(
                "the manifest's deltas leave a gap at journal number " + Long.toUnsignedString(at));
    }

    static Proof readProof(byte[] line, Keys keys) throws Refused {
        String json = keys.verify(line, "edgeward filter proof 1");
        Fields all = new Fields(json, "format", "set", "serial", "lineage", "epoch_min", "head", "lag_ms", "echo");
        return new Proof(
                all.value("set", String.class),
                all.number("serial"),
                all.number("lineage"),
                all.number("epoch_min"),
                all.number("head"),
                all.number("lag_ms"),
                all.value("echo", String.class));
    }

    /** The values of a JSON object that has exactly the expected fields. */
    private static final class Fields {
        private final Map<?, ?> values;

        /**
         * Parses a document of format version 2. A document without the field {@code format} has version 1, and is
         * refused: without {@code epoch_min}, it does not state which snapshots contain the committed ids.
         */
        Fields(String json, String... names) throws Refused {
            this(ofFormat2(parsed(json)), names);
        }

        private static Object ofFormat2(Object document) throws Refused {
            Object format = document instanceof Map<?, ?> map && map.containsKey("format") ? map.get("format") : 1L;
            if (!Long.valueOf(2).equals(format)) {
                throw Keys.unbelievable("the document has format version " + format + ", and this package reads version 2");
            }
            return document;
        }

        Fields(Object value, String... names) throws Refused {
            if (!(value instanceof Map<?, ?> map)) {
                throw Keys.unbelievable("the signed document has a value that is not an object");
            }
            if (!map.keySet().equals(Set.of(names))) {
                throw Keys.unbelievable(
                        "the signed document has the fields " + map.keySet() + ", and format version 2 has other fields");
            }
            values = map;
        }

        private static Object parsed(String json) throws Refused {
            try {
                return Json.parse(json);
            } catch (IllegalArgumentException error) {
                throw Keys.unbelievable(error.getMessage());
            }
        }

        <T> T value(String name, Class<T> type) throws Refused {
            Object value = values.get(name);
            if (!type.isInstance(value)) {
                throw Keys.unbelievable(name + " has an invalid value");
            }
            return type.cast(value);
        }

        long number(String name) throws Refused {
            return value(name, Long.class);
        }

        String digest() throws Refused {
            String digest = value("sha256", String.class);
            if (!digest.matches("[0-9a-fA-F]{64}")) {
                throw Keys.unbelievable("sha256 has an invalid value");
            }
            return digest.toLowerCase(java.util.Locale.ROOT);
        }
    }
}
