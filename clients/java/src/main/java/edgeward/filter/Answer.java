package edgeward.filter;

/** What to do about an id. */
public enum Answer {
    /** It does not exist, or not for as long as {@code maxStaleness}: skip the request. */
    ABSENT,
    /** It may exist: send the request. */
    MAYBE,
    /** Nothing can be said: send the request. */
    ASK
}
