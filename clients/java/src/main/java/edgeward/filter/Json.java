package edgeward.filter;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A parser for the part of JSON that the publisher's manifests and proofs of freshness use: objects (as maps), lists,
 * strings, integers and null. An integer is unsigned and has 64 bits; the {@code Long} contains these bits.
 */
final class Json {
    private static final int DEPTH_MAX = 8;

    private final String text;
    /** The index of the next character of the text. */
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Parses the text, or throws an {@code IllegalArgumentException}. */
    static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.parseValue(0);
        json.skipBlanks();
        if (json.at != text.length()) {
            throw json.error();
        }
        return value;
    }

    private Object parseValue(int depth) {
        skipBlanks();
        if (depth > DEPTH_MAX || at == text.length()) {
            throw error();
        }
        char first = text.charAt(at);
        if (first == '"') {
            return parseString();
        }
        if (take('[')) {
            List<Object> list = new ArrayList<>();
            if (take(']')) {
                return list;
            }
            do {
                list.add(parseValue(depth + 1));
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
                skipBlanks();
                String name = parseString();
                expect(':');
                if (object.containsKey(name)) {
                    throw error();
                }
                object.put(name, parseValue(depth + 1));
            } while (take(','));
            expect('}');
            return object;
        }
        if (text.startsWith("null", at)) {
            at += 4;
            return null;
        }
        return parseNumber();
    }

    private Long parseNumber() {
        int from = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        boolean fraction = at < text.length() && ".eE".indexOf(text.charAt(at)) >= 0;
        boolean zeros = at - from > 1 && text.charAt(from) == '0';
        if (from == at || at - from > 20 || fraction || zeros) {
            throw error();
        }
        return Long.parseUnsignedLong(text, from, at, 10);
    }

    private String parseString() {
        if (at == text.length() || text.charAt(at) != '"') {
            throw error();
        }
        at++;
        StringBuilder result = new StringBuilder();
        while (at < text.length()) {
            char next = text.charAt(at++);
            if (next == '"') {
                return result.toString();
            }
            if (next < ' ') {
                throw error();
            }
            result.append(next == '\\' ? parseEscape() : next);
        }
        throw error();
    }

    private char parseEscape() {
        if (at == text.length()) {
            throw error();
        }
        char kind = text.charAt(at++);
        int plain = "\"\\/bfnrt".indexOf(kind);
        if (plain >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(plain);
        }
        if (kind != 'u' || at + 4 > text.length()) {
            throw error();
        }
        int code = 0;
        for (int n = 0; n < 4; n++) {
            int digit = Character.digit(text.charAt(at++), 16);
            if (digit < 0) {
                throw error();
            }
            code = code << 4 | digit;
        }
        return (char) code;
    }

    private void skipBlanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    /** Skips blanks. If the wanted character follows, skips it too and returns true. */
    private boolean take(char wanted) {
        skipBlanks();
        if (at == text.length() || text.charAt(at) != wanted) {
            return false;
        }
        at++;
        return true;
    }

    private void expect(char wanted) {
        if (!take(wanted)) {
            throw error();
        }
    }

    private IllegalArgumentException error() {
        return new IllegalArgumentException("the document cannot be read at character " + at);
    }
}
