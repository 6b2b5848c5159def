package edgeward.filter;

import java.nio.charset.StandardCharsets;

/** The form of the ids of a set. It defines the canonical spelling of an id. */
public enum IdForm {
    // The order of the constants is that of the numbers in the file format.
    /** Text or bytes: each spelling is a separate id. */
    TEXT,
    /** UUIDs, in any of their usual spellings. */
    UUID,
    /** Integers of up to 128 bits, in decimal. */
    INTEGER;

    // The decimal digits of 2^127 - 1 and 2^127.
    private static final String MAX = "170141183460469231731687303715884105727";
    private static final String MIN_ABS = "170141183460469231731687303715884105728";
    private static final String URN = "urn:uuid:";

    /**
     * Returns the hash of an id that filters and deltas use: XXH3 of the canonical form. Text that is not an id
     * of the form is hashed unchanged; {@link #isReadAlike} then returns false.
     */
    public long hash(String id, long seed) {
        String canonical =
                switch (this) {
                    case TEXT -> null;
                    case UUID -> canonicalUuid(id);
                    case INTEGER -> canonicalInteger(id);
                };
        byte[] bytes = (canonical == null ? id : canonical).getBytes(StandardCharsets.UTF_8);
        return Xxh3.hash(bytes, 0, bytes.length, seed);
    }

    /** Like {@link #hash(String, long)}, for the bytes of a spelling. */
    public long hash(byte[] id, long seed) {
        if (this != TEXT) {
            // UUIDs and integers are ASCII. A byte above 127 becomes a character that makes the spelling invalid.
            String spelling = new String(id, StandardCharsets.ISO_8859_1);
            String canonical = this == UUID ? canonicalUuid(spelling) : canonicalInteger(spelling);
            if (canonical != null) {
                return TEXT.hash(canonical, seed);
            }
        }
        return Xxh3.hash(id, 0, id.length, seed);
    }

    /**
     * Returns true if every origin reads the text as the same id. Only then may the answer be {@code ABSENT}: see "Text
     * that is no id" in docs/reference/filter-format.md.
     */
    boolean isReadAlike(String id) {
        if (this != TEXT) {
            return (this == UUID ? canonicalUuid(id) : canonicalInteger(id)) != null;
        }
        for (int n = 0; n < id.length(); n++) {
            char c = id.charAt(n);
            boolean isEnd = n == 0 || n == id.length() - 1;
            if (c < ' ' || c == 0x7f || ";?#%".indexOf(c) >= 0 || isEnd && (c == ' ' || c == '/')) {
                return false;
            }
        }
        return !id.isEmpty() && id.charAt(0) != '\ufeff';
    }

    /**
     * Returns the canonical spelling of a UUID: lower case, with hyphens. The given spelling has 32 hex digits, with or
     * without the usual hyphens, and may be in braces or follow {@code urn:uuid:}. Returns null for other text.
     */
    private static String canonicalUuid(String id) {
        int from = 0;
        int to = id.length();
        if (id.regionMatches(true, 0, URN, 0, URN.length()) && isAscii(id, URN.length())) {
            from = URN.length();
        } else if (to >= 2 && id.charAt(0) == '{' && id.charAt(to - 1) == '}') {
            from = 1;
            to -= 1;
        }
        boolean hyphens = to - from == 36;
        if (!hyphens && to - from != 32) {
            return null;
        }
        char[] canonical = new char[36];
        int at = 0;
        for (int n = from; n < to; n++) {
            char digit = id.charAt(n);
            if (at == 8 || at == 13 || at == 18 || at == 23) {
                canonical[at++] = '-';
                if (hyphens) {
                    if (digit != '-') {
                        return null;
                    }
                    continue;
                }
            }
            if (digit >= 'A' && digit <= 'F') {
                digit += 'a' - 'A';
            }
            if ((digit < '0' || digit > '9') && (digit < 'a' || digit > 'f')) {
                return null;
            }
            canonical[at++] = digit;
        }
        return new String(canonical);
    }

    /**
     * Returns true if the first {@code length} characters are ASCII. This check is needed because
     * {@code regionMatches} ignores case also beyond ASCII: it accepts a dotless i (U+0131) for an i.
     */
    private static boolean isAscii(String id, int length) {
        for (int n = 0; n < length; n++) {
            if (id.charAt(n) > 127) {
                return false;
            }
        }
        return true;
    }

    /**
     * Returns the canonical spelling of a decimal integer of up to 128 bits: without plus sign and leading zeros.
     * Returns null for other text.
     */
    private static String canonicalInteger(String id) {
        boolean negative = id.startsWith("-");
        int from = negative || id.startsWith("+") ? 1 : 0;
        if (from == id.length()) {
            return null;
        }
        for (int n = from; n < id.length(); n++) {
            if (id.charAt(n) < '0' || id.charAt(n) > '9') {
                return null;
            }
        }
        while (from < id.length() - 1 && id.charAt(from) == '0') {
            from++;
        }
        String digits = id.substring(from);
        String limit = negative ? MIN_ABS : MAX;
        // Numbers with the same count of digits have the order of their texts.
        boolean fits =
                digits.length() < limit.length()
                        || digits.length() == limit.length() && digits.compareTo(limit) <= 0;
        if (!fits) {
            return null;
        }
        return negative && !digits.equals("0") ? "-" + digits : digits;
    }
}
