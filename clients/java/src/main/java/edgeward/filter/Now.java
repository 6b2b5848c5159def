package edgeward.filter;

/**
 * The time of a machine's two clocks.
 *
 * @param monotonicMs milliseconds since an arbitrary moment; never decreases
 * @param wallMs milliseconds since 1970; may be stepped in either direction
 */
public record Now(long monotonicMs, long wallMs) {
    /**
     * Reads the clocks of this machine. {@code nanoTime} may stop while the machine sleeps; the wall clock then shows
     * how long the sleep was.
     */
    public static Now ofThisMachine() {
        return new Now(System.nanoTime() / 1_000_000, System.currentTimeMillis());
    }
}
