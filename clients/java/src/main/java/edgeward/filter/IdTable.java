package edgeward.filter;

import java.security.SecureRandom;

/**
 * The ids added since the snapshot, each with the journal number at which its delta ends. The table uses open
 * addressing and is at most half full.
 */
final class IdTable {
    // The seed is random, so an attacker cannot choose ids that collide in the table.
    private final long seed = new SecureRandom().nextLong();
    private long[] ids = new long[16];
    // The journal number of the id in each slot; 0 in an empty slot, because no delta ends at 0.
    private long[] numbers = new long[16];
    private int size;

    int size() {
        return size;
    }

    boolean has(long id) {
        return size != 0 && numbers[slot(id)] != 0;
    }

    /** Adds an id. If the table already has the id, keeps the larger of the two journal numbers. */
    void add(long id, long number) {
        int at = slot(id);
        if (numbers[at] != 0) {
            if (Long.compareUnsigned(numbers[at], number) < 0) {
                numbers[at] = number;
            }
            return;
        }
        ids[at] = id;
        numbers[at] = number;
        size++;
        if (size * 2 > ids.length) {
            rebuild(ids.length * 2, 0);
        }
    }

    /** Removes the ids whose journal number is at most {@code base}: a snapshot with this base contains them. */
    void forgetUpTo(long base) {
        int remaining = 0;
        for (long number : numbers) {
            remaining += Long.compareUnsigned(number, base) > 0 ? 1 : 0;
        }
        int capacity = 16;
        while (remaining * 2 > capacity) {
            capacity *= 2;
        }
        rebuild(capacity, base);
    }

    /** Copies the ids whose journal number is above {@code base} to a table with this number of slots. */
    private void rebuild(int capacity, long base) {
        long[] oldIds = ids;
        long[] oldNumbers = numbers;
        ids = new long[capacity];
        numbers = new long[capacity];
        size = 0;
        for (int at = 0; at < oldIds.length; at++) {
            if (Long.compareUnsigned(oldNumbers[at], base) > 0) {
                add(oldIds[at], oldNumbers[at]);
            }
        }
    }

    /** Returns the slot that contains the id, or else the empty slot in which the id belongs. */
    private int slot(long id) {
        int mask = ids.length - 1;
        int at = (int) Filter.mix(id, seed) & mask;
        while (numbers[at] != 0 && ids[at] != id) {
            at = (at + 1) & mask;
        }
        return at;
    }
}
