package edgeward.filter;

import java.security.SecureRandom;

/** The added ids, each with the journal number of its delta: a hash table with open addressing, at most half full. */
final class IdTable {
    // A random seed, so that an attacker cannot choose ids that collide in the table.
    private final long seed = new SecureRandom().nextLong();
    private long[] ids = new long[16];
    // 0 in an empty slot: the last number of a delta is never 0.
    private long[] to = new long[16];
    private int size;

    int size() {
        return size;
    }

    boolean has(long id) {
        return size != 0 && to[place(id)] != 0;
    }

    /** Adds an id, or raises the number of an existing one. */
    void add(long id, long number) {
        int at = place(id);
        if (to[at] != 0) {
            if (Long.compareUnsigned(to[at], number) < 0) {
                to[at] = number;
            }
            return;
        }
        ids[at] = id;
        to[at] = number;
        size++;
        if (size * 2 > ids.length) {
            rebuild(ids.length * 2, 0);
        }
    }

    /** Removes the ids that a snapshot with this base contains. */
    void forgetUpTo(long base) {
        int left = 0;
        for (long number : to) {
            left += Long.compareUnsigned(number, base) > 0 ? 1 : 0;
        }
        int room = 16;
        while (left * 2 > room) {
            room *= 2;
        }
        rebuild(room, base);
    }

    private void rebuild(int room, long base) {
        long[] oldIds = ids;
        long[] oldTo = to;
        ids = new long[room];
        to = new long[room];
        size = 0;
        for (int at = 0; at < oldIds.length; at++) {
            if (Long.compareUnsigned(oldTo[at], base) > 0) {
                add(oldIds[at], oldTo[at]);
            }
        }
    }

    /** Returns the slot of the id, or the slot for it. */
    private int place(long id) {
        int mask = ids.length - 1;
        int at = (int) Filter.mix(id, seed) & mask;
        while (to[at] != 0 && ids[at] != id) {
            at = (at + 1) & mask;
        }
        return at;
    }
}
