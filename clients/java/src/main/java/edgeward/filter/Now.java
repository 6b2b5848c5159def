package edgeward.filter;

/**
 * The time of a machine's two clocks.
 *
 * @param monotonicMs milliseconds since an arbitrary moment; never decreases
 * @param wallMs milliseconds since 1970; may be stepped in either direction
 */
public record Now(long monotonicMs, long wallMs) {
    /** The clocks of this machine. The wall clock detects a sleep, during which {@code nanoTime} may stand still. */
    public static Now ofThisMachine() {
        return new Now(System.nanoTime() / 1_000_000, System.currentTimeMillis());
    }
}
