package edgeward.filter;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A parser for the part of JSON that documents use: objects as maps, lists, text, unsigned integers of 64 bits as
 * {@code Long}, and null.
 */
final class Json {
    private static final int DEPTH_MAX = 8;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Parses the text, or throws an {@code IllegalArgumentException}. */
    static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.blanks();
        if (json.at != text.length()) {
            throw json.wrong();
        }
        return value;
    }

    private Object value(int depth) {
        blanks();
        if (depth > DEPTH_MAX || at == text.length()) {
            throw wrong();
        }
        char first = text.charAt(at);
        if (first == '"') {
            return string();
        }
        if (take('[')) {
            List<Object> list = new ArrayList<>();
            if (take(']')) {
                return list;
            }
            do {
                list.add(value(depth + 1));
            } while (take(','));
            expect(']');
            return list;
        }
        if (take('{')) {
            Map<String, Object> object = new LinkedHashMap<>();
            if (take('}')) {
                return object;
            }
            do {
                blanks();
                String name = string();
                expect(':');
                if (object.containsKey(name)) {
                    throw wrong();
                }
                object.put(name, value(depth + 1));
            } while (take(','));
            expect('}');
            return object;
        }
        if (text.startsWith("null", at)) {
            at += 4;
            return null;
        }
        return number();
    }

    private Long number() {
        int from = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        boolean fraction = at < text.length() && ".eE".indexOf(text.charAt(at)) >= 0;
        boolean zeros = at - from > 1 && text.charAt(from) == '0';
        if (from == at || at - from > 20 || fraction || zeros) {
            throw wrong();
        }
        return Long.parseUnsignedLong(text, from, at, 10);
    }

    private String string() {
        if (at == text.length() || text.charAt(at) != '"') {
            throw wrong();
        }
        at++;
        StringBuilder made = new StringBuilder();
        while (at < text.length()) {
            char next = text.charAt(at++);
            if (next == '"') {
                return made.toString();
            }
            if (next < ' ') {
                throw wrong();
            }
            made.append(next == '\\' ? escaped() : next);
        }
        throw wrong();
    }

    private char escaped() {
        if (at == text.length()) {
            throw wrong();
        }
        char kind = text.charAt(at++);
        int plain = "\"\\/bfnrt".indexOf(kind);
        if (plain >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(plain);
        }
        if (kind != 'u' || at + 4 > text.length()) {
            throw wrong();
        }
        int code = 0;
        for (int n = 0; n < 4; n++) {
            int digit = Character.digit(text.charAt(at++), 16);
            if (digit < 0) {
                throw wrong();
            }
            code = code << 4 | digit;
        }
        return (char) code;
    }

    private void blanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private boolean take(char wanted) {
        blanks();
        if (at == text.length() || text.charAt(at) != wanted) {
            return false;
        }
        at++;
        return true;
    }

    private void expect(char wanted) {
        if (!take(wanted)) {
            throw wrong();
        }
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("the document cannot be read at character " + at);
    }
}
