package edgeward.filter;

/** The bytes are not a valid filter or delta. */
public final class FilterException extends Exception {
    private static final long serialVersionUID = 1;

    FilterException(String message) {
        super(message);
    }
}
