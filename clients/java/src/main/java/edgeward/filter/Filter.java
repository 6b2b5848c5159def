package edgeward.filter;

import static edgeward.filter.Xxh3.i32;
import static edgeward.filter.Xxh3.mulHigh;
import static edgeward.filter.Xxh3.u32;
import static edgeward.filter.Xxh3.u64;

import java.time.Instant;
import java.util.Optional;

/**
 * An id filter in memory. {@link #open} checks the number and the sizes of the filter's parts against the length of the
 * file, so a hostile file cannot cause large allocations (docs/reference/filter-format.md).
 */
public final class Filter {
    private static final int HEADER_BYTES = 128;
    private static final int SHARD_BYTES = 32;
    private static final int BLOCK_BYTES = 32;
    private static final long SLOTS_MAX = 1 << 28;
    private static final int SEGMENT_LOG2_MAX = 16;
    // Each shard ends with padding, so that eight bytes can be read from the first byte of any slot.
    private static final int PADDING_BYTES = 7;
    // The bytes 89 45 57 46 0d 0a 1a 0a.
    private static final long MAGIC = 0x0a1a0a0d46574589L;

    // The multipliers that select an id's bit in each of the eight lanes (32-bit words) of a block.
    private static final int[] SALTS = {
        0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31
    };

    private final byte[] file;
    private final Facts facts;
    // Exactly one of the two fields is set: the number of blocks of an updatable filter, or the shards of a static one.
    private final long blocks;
    private final Shard[] shards;

    /**
     * The fields of a filter's header.
     *
     * @param updatable a blocked Bloom filter, otherwise a static one (binary fuse)
     * @param form the form of the ids: text, UUIDs or integers
     * @param epoch the number of the build, unsigned; each later build of the filter has a higher number
     * @param built the time of the build, if known
     * @param ids the number of ids in the filter
     * @param capacityIds the number of ids for which the filter was built
     * @param seed the seed of the ids' hashes
     * @param rate the configured false-positive rate
     * @param bytes the length of the file
     */
    public record Facts(
            boolean updatable,
            IdForm form,
            long epoch,
            Optional<Instant> built,
            long ids,
            long capacityIds,
            long seed,
            double rate,
            int bytes) {}

    /**
     * A shard of a static filter. An id has four slots, each in another of four neighbouring segments.
     *
     * @param from the offset of the shard's first slot in the file
     * @param seed the number that is mixed with the hash of an id to select its slots
     * @param starts the number of slots that may be the first slot of an id; 0 for a shard without ids
     * @param wideFrom the first slot that has one bit more than {@code bits}
     * @param segment the number of slots of a segment, a power of two
     * @param bits the number of bits of a slot before {@code wideFrom}
     */
    private record Shard(int from, long seed, int starts, int wideFrom, int segment, int bits) {}

    private Filter(byte[] file, Facts facts, long blocks, Shard[] shards) {
        this.file = file;
        this.facts = facts;
        this.blocks = blocks;
        this.shards = shards;
    }

    /** Opens a filter. Keeps a reference to the bytes, which must not change. */
    public static Filter open(byte[] file) throws FilterException {
        if (file.length < 8 || u64(file, 0) != MAGIC) {
            throw new FilterException("not an edgeward id filter");
        }
        if (file.length < HEADER_BYTES) {
            throw new FilterException("the filter is truncated within its header, after " + file.length + " bytes");
        }
        int version = i32(file, 8) & 0xffff;
        if (version != 1) {
            throw new FilterException(
                    "the filter has format version " + version + ", and this package reads version 1");
        }
        if (u64(file, 120) != Xxh3.hash(file, 0, 120, 0)) {
            throw new FilterException("the filter's header is corrupt: its checksum does not match");
        }
        // 1 is a static filter, 2 an updatable one.
        int kind = file[10];
        int form = file[11];
        boolean known = (kind == 1 || kind == 2) && form >= 0 && form < IdForm.values().length;
        for (int at = 80; at < 120; at++) {
            known &= file[at] == 0;
        }
        if (!known) {
            throw new FilterException("the filter's header has a value that format version 1 does not define");
        }
        int payloadBytes = file.length - HEADER_BYTES;
        if (u64(file, 64) != payloadBytes) {
            throw new FilterException(
                    "the filter has " + payloadBytes + " bytes after its header, and the header states "
                            + Long.toUnsignedString(u64(file, 64)));
        }
        if (u64(file, 72) != Xxh3.hash(file, HEADER_BYTES, file.length, 0)) {
            throw new FilterException("the filter's payload is corrupt: its checksum does not match");
        }
        double rate = Double.longBitsToDouble(u64(file, 56));
        if (!(rate > 0 && rate < 1)) {
            throw invalidHeader("the false-positive rate is not between 0 and 1");
        }
        // The number of blocks of an updatable filter, or of shards of a static one.
        long parts = u32(file, 12);
        long builtMs = u64(file, 24);
        Facts facts =
                new Facts(
                        kind == 2,
                        IdForm.values()[form],
                        u64(file, 16),
                        builtMs > 0 ? Optional.of(Instant.ofEpochMilli(builtMs)) : Optional.empty(),
                        u64(file, 32),
                        u64(file, 40),
                        u64(file, 48),
                        rate,
                        file.length);
        if (kind == 2) {
            if (parts == 0 || payloadBytes != parts * BLOCK_BYTES) {
                throw invalidHeader("the number of blocks does not match the length of the payload");
            }
            return new Filter(file, facts, parts, null);
        }
        return new Filter(file, facts, 0, readShards(file, parts));
    }

    private static FilterException invalidHeader(String problem) {
        return new FilterException("the filter's header is invalid: " + problem);
    }

    private static Shard[] readShards(byte[] file, long count) throws FilterException {
        long next = HEADER_BYTES + count * SHARD_BYTES;
        if (count == 0 || next > file.length) {
            throw invalidHeader("the payload is too short for the number of shards");
        }
        // The file has 32 bytes per shard here, so its length limits the number of shards.
        Shard[] shards = new Shard[(int) count];
        for (int number = 0; number < shards.length; number++) {
            int at = HEADER_BYTES + number * SHARD_BYTES;
            long segments = u32(file, at + 16);
            long wideFrom = u32(file, at + 20);
            int log2 = file[at + 24] & 0xff;
            int bits = file[at + 25] & 0xff;
            // Each shard begins where its predecessor ends, and unused bytes are 0. Filters of equal content are thus
            // equal files. A shard without ids has `segments` 0 and no slots.
            boolean valid = u64(file, at) == next - HEADER_BYTES && u64(file, at + 24) >>> 16 == 0;
            long size = 0;
            if (segments == 0) {
                valid &= wideFrom == 0 && log2 == 0 && bits == 1;
            } else {
                valid &= bits >= 1 && bits <= 32 && log2 <= SEGMENT_LOG2_MAX;
                if (valid) {
                    long slots = (segments + 3) << log2;
                    valid = slots <= SLOTS_MAX && wideFrom <= slots;
                    size = (slots * bits + slots - wideFrom + 7) / 8 + PADDING_BYTES;
                }
            }
            if (!valid || next + size > file.length) {
                throw new FilterException("shard " + number + " of the filter has an invalid size or offset");
            }
            shards[number] =
                    new Shard(
                            (int) next, u64(file, at + 8), (int) (segments << log2), (int) wideFrom, 1 << log2, bits);
            next += size;
        }
        if (next != file.length) {
            throw new FilterException("the filter's payload is invalid: it is longer than its shards");
        }
        return shards;
    }

    /** The fields of the header. */
    public Facts facts() {
        return facts;
    }

    /**
     * Returns false only if the id is certainly not in the filter. Returns true for text that is not an id which every
     * origin reads alike, such as {@code " 7"} or {@code "k2;v=1"}.
     */
    public boolean mayContain(String id) {
        return !facts.form.isReadAlike(id) || mayContainHash(facts.form.hash(id, facts.seed));
    }

    /** Like {@link #mayContain(String)}, for the bytes of an id. With the form text, the id has arbitrary bytes. */
    public boolean mayContain(byte[] id) {
        boolean isId =
                facts.form == IdForm.TEXT
                        || facts.form.isReadAlike(new String(id, java.nio.charset.StandardCharsets.ISO_8859_1));
        return !isId || mayContainHash(facts.form.hash(id, facts.seed));
    }

    boolean mayContainHash(long hash) {
        if (shards == null) {
            return mayContainInBlocks(hash);
        }
        return mayContainInShard(shards[(int) mulHigh(hash, shards.length)], hash);
    }

    private boolean mayContainInBlocks(long hash) {
        int at = HEADER_BYTES + (int) ((hash >>> 32) * blocks >>> 32) * BLOCK_BYTES;
        int missing = 0;
        for (int lane = 0; lane < 8; lane++) {
            int bit = 1 << ((int) hash * SALTS[lane] >>> 27);
            missing |= bit & ~i32(file, at + 4 * lane);
        }
        return missing == 0;
    }

    private boolean mayContainInShard(Shard shard, long hash) {
        if (shard.starts == 0) {
            return false;
        }
        long m = mix(hash, shard.seed);
        long w = m * 0x9e3779b97f4a7c15L;
        w ^= w >>> 32;
        int segment = shard.segment;
        int mask = segment - 1;
        int start = (int) ((m >>> 32) * shard.starts >>> 32);
        int width = shard.bits + (start >= shard.wideFrom ? 1 : 0);
        long sum = w >>> (64 - width);
        sum ^= slot(shard, start);
        sum ^= slot(shard, (start + segment) ^ ((int) m & mask));
        sum ^= slot(shard, (start + 2 * segment) ^ ((int) (m >>> 16) & mask));
        sum ^= slot(shard, (start + 3 * segment) ^ ((int) w & mask));
        return sum << (64 - width) == 0;
    }

    private long slot(Shard shard, int slot) {
        long bit = (long) slot * shard.bits + Math.max(0, slot - shard.wideFrom);
        return u64(file, shard.from + (int) (bit >>> 3)) >>> (bit & 7);
    }

    /** Mixes a hash with a seed: the finaliser of MurmurHash3 (Austin Appleby, public domain). */
    static long mix(long hash, long seed) {
        long x = hash ^ seed;
        x = (x ^ x >>> 33) * 0xff51afd7ed558ccdL;
        x = (x ^ x >>> 33) * 0xc4ceb9fe1a85ec53L;
        return x ^ x >>> 33;
    }
}
