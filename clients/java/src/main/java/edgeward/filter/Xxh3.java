package edgeward.filter;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.HexFormat;

/**
 * XXH3 with 64 bits (Yann Collet), the hash of ids and the checksum of filter files. As the
 * specification demands, each range of lengths has its own algorithm.
 */
final class Xxh3 {
    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private static final byte[] SECRET =
            HexFormat.of()
                    .parseHex(
                            "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
                                    + "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
                                    + "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
                                    + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
                                    + "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
                                    + "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e");

    private static final long PRIME32_1 = 0x9e3779b1L;
    private static final long PRIME32_2 = 0x85ebca77L;
    private static final long PRIME32_3 = 0xc2b2ae3dL;
    private static final long PRIME64_1 = 0x9e3779b185ebca87L;
    private static final long PRIME64_2 = 0xc2b2ae3d27d4eb4fL;
    private static final long PRIME64_3 = 0x165667b19e3779f9L;
    private static final long PRIME64_4 = 0x85ebca77c2b2ae63L;
    private static final long PRIME64_5 = 0x27d4eb2f165667c5L;

    private static final int STRIPE_BYTES = 64;
    private static final int BLOCK_BYTES = 1024;

    private Xxh3() {}

    static long u64(byte[] bytes, int at) {
        return (long) LONG.get(bytes, at);
    }

    static int i32(byte[] bytes, int at) {
        return (int) INT.get(bytes, at);
    }

    static long u32(byte[] bytes, int at) {
        return i32(bytes, at) & 0xffffffffL;
    }

    /** Returns the hash of the bytes from index {@code from} up to, but not including, {@code to}. */
    static long hash(byte[] bytes, int from, int to, long seed) {
        int length = to - from;
        if (length > 240) {
            return moreThan240(bytes, from, length, seed);
        }
        if (length > 128) {
            return upTo240(bytes, from, length, seed);
        }
        if (length > 16) {
            return upTo128(bytes, from, length, seed);
        }
        if (length > 8) {
            long lo = u64(bytes, from) ^ ((secretWord(24) ^ secretWord(32)) + seed);
            long hi = u64(bytes, to - 8) ^ ((secretWord(40) ^ secretWord(48)) - seed);
            return xxh3Avalanche(length + Long.reverseBytes(lo) + hi + mulFold(lo, hi));
        }
        if (length > 3) {
            seed ^= (Integer.reverseBytes((int) seed) & 0xffffffffL) << 32;
            long x = u32(bytes, to - 4) + (u32(bytes, from) << 32);
            x ^= (secretWord(8) ^ secretWord(16)) - seed;
            x ^= Long.rotateLeft(x, 49) ^ Long.rotateLeft(x, 24);
            x *= 0x9fb21c651e98df25L;
            x ^= (x >>> 35) + length;
            x *= 0x9fb21c651e98df25L;
            return x ^ x >>> 28;
        }
        if (length > 0) {
            long combined =
                    (bytes[from] & 0xffL) << 16
                            | (bytes[from + (length >> 1)] & 0xffL) << 24
                            | bytes[to - 1] & 0xffL
                            | (long) length << 8;
            return xxh64Avalanche(combined ^ ((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed));
        }
        return xxh64Avalanche(seed ^ secretWord(56) ^ secretWord(64));
    }

    private static long secretWord(int at) {
        return u64(SECRET, at);
    }

    /** Returns the upper 64 bits of the product of two unsigned numbers. */
    static long mulHigh(long a, long b) {
        return Math.multiplyHigh(a, b) + ((a >> 63) & b) + ((b >> 63) & a);
    }

    private static long mulFold(long a, long b) {
        return a * b ^ mulHigh(a, b);
    }

    private static long xxh3Avalanche(long x) {
        x ^= x >>> 37;
        x *= 0x165667919e3779f9L;
        return x ^ x >>> 32;
    }

    private static long xxh64Avalanche(long x) {
        x ^= x >>> 33;
        x *= PRIME64_2;
        x ^= x >>> 29;
        x *= PRIME64_3;
        return x ^ x >>> 32;
    }

    private static long mix16(byte[] bytes, int at, int secretAt, long seed) {
        return mulFold(
                u64(bytes, at) ^ (secretWord(secretAt) + seed),
                u64(bytes, at + 8) ^ (secretWord(secretAt + 8) - seed));
    }

    private static long upTo128(byte[] bytes, int from, int length, long seed) {
        long sum = length * PRIME64_1;
        for (int pair = (length - 1) / 32; pair >= 0; pair--) {
            sum += mix16(bytes, from + 16 * pair, 32 * pair, seed);
            sum += mix16(bytes, from + length - 16 * (pair + 1), 32 * pair + 16, seed);
        }
        return xxh3Avalanche(sum);
    }

    private static long upTo240(byte[] bytes, int from, int length, long seed) {
        long sum = length * PRIME64_1;
        for (int n = 0; n < 8; n++) {
            sum += mix16(bytes, from + 16 * n, 16 * n, seed);
        }
        sum = xxh3Avalanche(sum);
        for (int n = 8; n < length / 16; n++) {
            sum += mix16(bytes, from + 16 * n, 16 * (n - 8) + 3, seed);
        }
        sum += mix16(bytes, from + length - 16, 136 - 17, seed);
        return xxh3Avalanche(sum);
    }

    private static long moreThan240(byte[] bytes, int from, int length, long seed) {
        byte[] secret = SECRET;
        if (seed != 0) {
            secret = new byte[SECRET.length];
            for (int at = 0; at < secret.length; at += 16) {
                LONG.set(secret, at, secretWord(at) + seed);
                LONG.set(secret, at + 8, secretWord(at + 8) - seed);
            }
        }
        long[] acc = {
            PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1
        };
        int blocks = (length - 1) / BLOCK_BYTES;
        for (int block = 0; block < blocks; block++) {
            for (int stripe = 0; stripe < 16; stripe++) {
                int at = from + block * BLOCK_BYTES + stripe * STRIPE_BYTES;
                accumulate(acc, bytes, at, secret, 8 * stripe);
            }
            for (int lane = 0; lane < 8; lane++) {
                long key = u64(secret, secret.length - STRIPE_BYTES + 8 * lane);
                acc[lane] = (acc[lane] ^ acc[lane] >>> 47 ^ key) * PRIME32_1;
            }
        }
        int rest = from + blocks * BLOCK_BYTES;
        int stripes = (length - 1 - blocks * BLOCK_BYTES) / STRIPE_BYTES;
        for (int stripe = 0; stripe < stripes; stripe++) {
            accumulate(acc, bytes, rest + stripe * STRIPE_BYTES, secret, 8 * stripe);
        }
        int last = from + length - STRIPE_BYTES;
        accumulate(acc, bytes, last, secret, secret.length - STRIPE_BYTES - 7);
        long sum = length * PRIME64_1;
        for (int lane = 0; lane < 8; lane += 2) {
            sum +=
                    mulFold(
                            acc[lane] ^ u64(secret, 11 + 8 * lane),
                            acc[lane + 1] ^ u64(secret, 19 + 8 * lane));
        }
        return xxh3Avalanche(sum);
    }

    private static void accumulate(long[] acc, byte[] bytes, int at, byte[] secret, int secretAt) {
        for (int lane = 0; lane < 8; lane++) {
            long value = u64(bytes, at + 8 * lane);
            long keyed = value ^ u64(secret, secretAt + 8 * lane);
            acc[lane ^ 1] += value;
            acc[lane] += (keyed & 0xffffffffL) * (keyed >>> 32);
        }
    }
}
