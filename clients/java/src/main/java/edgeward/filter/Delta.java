package edgeward.filter;

import static edgeward.filter.Xxh3.u64;

import java.util.Arrays;

/**
 * The ids that were added after the number {@code from} of a publisher's journal, up to the number {@code to}. All
 * numbers are unsigned.
 *
 * @param lineage identifies the journal
 * @param seed the seed of the ids' hashes
 * @param ids the hashes of the ids in ascending order
 */
record Delta(long lineage, long from, long to, long seed, long[] ids) {
    static final int HEADER_BYTES = 64;
    // The bytes 89 45 57 44 0d 0a 1a 0a.
    private static final long MAGIC = 0x0a1a0a0d44574589L;
    private static final int CHECKSUM_AT = 56;

    static Delta read(byte[] file) throws FilterException {
        if (file.length < 8 || u64(file, 0) != MAGIC) {
            throw new FilterException("not a delta of an edgeward id filter");
        }
        if (file.length < HEADER_BYTES) {
            throw new FilterException("the delta is truncated within its header, after " + file.length + " bytes");
        }
        if (u64(file, 8) != 1) {
            throw new FilterException("the delta has another format version, and this package reads version 1");
        }
        int idBytes = file.length - HEADER_BYTES;
        if (idBytes % 8 != 0 || u64(file, 48) != idBytes / 8) {
            throw new FilterException("the delta does not have the number of ids that its header states");
        }
        // The bytes that the checksum covers: the header up to the checksum, then the ids.
        byte[] checked = Arrays.copyOf(file, file.length - 8);
        System.arraycopy(file, HEADER_BYTES, checked, CHECKSUM_AT, idBytes);
        if (u64(file, CHECKSUM_AT) != Xxh3.hash(checked, 0, checked.length, 0)) {
            throw new FilterException("the delta is corrupt: its checksum does not match");
        }
        long[] ids = new long[idBytes / 8];
        long from = u64(file, 24);
        long to = u64(file, 32);
        boolean ordered = Long.compareUnsigned(from, to) < 0;
        for (int n = 0; n < ids.length; n++) {
            ids[n] = u64(file, HEADER_BYTES + 8 * n);
            ordered &= n == 0 || Long.compareUnsigned(ids[n - 1], ids[n]) < 0;
        }
        if (!ordered) {
            throw new FilterException("the journal numbers or the ids of the delta are not in ascending order");
        }
        return new Delta(u64(file, 16), from, to, u64(file, 40), ids);
    }
}
