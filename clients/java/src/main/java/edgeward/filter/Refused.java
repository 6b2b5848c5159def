package edgeward.filter;

/** Received data was not used. The previous data stays in use. */
public final class Refused extends Exception {
    private static final long serialVersionUID = 1;

    /** Why the data was not used. */
    public enum Reason {
        /** A manifest or proof is not trusted or is invalid. */
        UNBELIEVABLE,
        /** The manifest or proof belongs to another set. */
        OTHER_SET,
        /** A newer manifest was received before. */
        REPLAYED,
        /**
         * The publisher's journal number or {@code epoch_min} decreased within a lineage: its state was restored from a
         * backup, or two publishers share a key.
         */
        FALLING,
        /** No request in progress had the challenge of this proof. */
        NOT_ASKED,
        /** No trusted manifest lists the file. */
        UNLISTED,
        /** An earlier delta is missing, or the snapshot of the delta's lineage. */
        EARLY,
        /**
         * The snapshot in use has the same epoch or a higher one, has ids up to a higher number of the journal, or has
         * another hash seed.
         */
        OLDER,
        /** Two statements of the publisher cannot both be true. */
        CONTRADICTION,
        /** The file is invalid, although its digest is the published one. */
        BROKEN,
        /** The snapshot is larger than the operator allows. */
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
