package edgeward.filter;

/** Something that came was not used. What was there before stays in use. */
public final class Refused extends Exception {
    private static final long serialVersionUID = 1;

    /** Why, in a word. */
    public enum Reason {
        /** A manifest or proof is not believed or cannot be read. */
        UNBELIEVABLE,
        /** It speaks of other ids. */
        OTHER_SET,
        /** A newer manifest was seen. */
        REPLAYED,
        /** Within one lineage numbers only grow: the publisher's state was put back. */
        FALLING,
        /** No request that is under way carried these bytes. */
        NOT_ASKED,
        /** No believed manifest names it. */
        UNLISTED,
        /** Something before it is missing. */
        EARLY,
        /** What is here is as new. */
        OLDER,
        /** Two statements of the publisher cannot both be true. */
        CONTRADICTION,
        /** The publisher built it so. */
        BROKEN,
        /** Larger than the operator allows. */
        TOO_LARGE,
        /** Too many ids were added since the snapshot. */
        OVERLAY_FULL
    }

    private final Reason reason;

    Refused(Reason reason, String message) {
        super(message);
        this.reason = reason;
    }

    public Reason reason() {
        return reason;
    }
}
