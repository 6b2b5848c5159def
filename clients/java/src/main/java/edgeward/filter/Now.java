package edgeward.filter;

/**
 * What a machine's clocks show.
 *
 * @param monotonicMs milliseconds since any fixed moment; never falls
 * @param wallMs milliseconds since 1970; may be stepped in either direction
 */
public record Now(long monotonicMs, long wallMs) {
    /** Of this machine. A sleep is noticed by the wall clock, as {@code nanoTime} may stand still meanwhile. */
    public static Now ofThisMachine() {
        return new Now(System.nanoTime() / 1_000_000, System.currentTimeMillis());
    }
}
