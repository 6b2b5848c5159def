package edgeward.filter;

/** Bytes are no filter or delta to be used. */
public final class FilterException extends Exception {
    private static final long serialVersionUID = 1;

    FilterException(String message) {
        super(message);
    }
}
