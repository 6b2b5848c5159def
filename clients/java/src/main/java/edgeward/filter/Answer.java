package edgeward.filter;

/** The result of a query for an id: says whether to send the request for the id to the service. */
public enum Answer {
    /** The id does not exist, or was added less than {@code maxStaleness} ago: do not send the request. */
    ABSENT,
    /** The id may exist: send the request. */
    MAYBE,
    /** The client has no fresh filter: send the request. */
    ASK
}
