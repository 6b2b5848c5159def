package edgeward.filter;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.PublicKey;
import java.security.Signature;
import java.security.spec.X509EncodedKeySpec;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;

/** The trusted public keys, or trust in any server that answers. */
public final class Keys {
    // The X.509 encoding of an Ed25519 public key is this prefix and the 32 bytes of the key (RFC 8410).
    private static final byte[] X509 = HexFormat.of().parseHex("302a300506032b6570032100");
    private static final int LINE_BYTES_MAX = 64 << 10;

    /** The trusted keys by the first 16 hex digits of their SHA-256; empty if any server is trusted. */
    private final Map<String, PublicKey> keys;

    private Keys(Map<String, PublicKey> keys) {
        this.keys = keys;
    }

    /** Trusts several keys of 64 hex digits each, for example the old and the new key during a change of keys. */
    public static Keys of(Collection<String> texts) {
        Map<String, PublicKey> keys = new TreeMap<>();
        for (String text : texts) {
            try {
                byte[] raw = HexFormat.of().parseHex(text);
                if (raw.length != 32) {
                    throw new IllegalArgumentException();
                }
                byte[] encoded = new byte[X509.length + raw.length];
                System.arraycopy(X509, 0, encoded, 0, X509.length);
                System.arraycopy(raw, 0, encoded, X509.length, raw.length);
                PublicKey key = KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(encoded));
                keys.put(sha256(raw).substring(0, 16), key);
            } catch (IllegalArgumentException | GeneralSecurityException error) {
                throw new IllegalArgumentException("a public key has 64 hex digits of a point on the curve", error);
            }
        }
        if (keys.isEmpty()) {
            throw new IllegalArgumentException("give a key, or Keys.trustTransport() to trust any server that answers");
        }
        return new Keys(keys);
    }

    /** Trusts one key of 64 hex digits. */
    public static Keys of(String text) {
        return of(java.util.List.of(text));
    }

    /** Trusts any server that answers. The data is protected only if the connection uses TLS. */
    public static Keys trustTransport() {
        return new Keys(Map.of());
    }

    /**
     * Returns the JSON document of a line {@code ed25519 KEY SIGNATURE JSON} or {@code unsigned JSON}. Verifies the
     * signature, which covers {@code kind}, a line feed and the JSON, unless any server is trusted. {@code kind} names
     * the format of the document, such as {@code edgeward filter manifest 1}.
     */
    String verify(byte[] line, String kind) throws Refused {
        if (line.length > LINE_BYTES_MAX) {
            throw unbelievable("a signed line of " + line.length + " bytes is longer than " + LINE_BYTES_MAX);
        }
        String text = new String(line, StandardCharsets.UTF_8);
        int end = text.length();
        while (end > 0 && (text.charAt(end - 1) == '\n' || text.charAt(end - 1) == '\r')) {
            end--;
        }
        text = text.substring(0, end);
        String[] words = text.split(" ", 4);
        if (words[0].equals("unsigned") && words.length > 1) {
            if (!keys.isEmpty()) {
                throw unbelievable("the line is not signed");
            }
            return text.substring("unsigned ".length());
        }
        if (!words[0].equals("ed25519") || words.length < 4) {
            throw unbelievable("not a signed line");
        }
        if (!keys.isEmpty()) {
            PublicKey key = keys.get(words[1]);
            if (key == null) {
                String id = words[1].substring(0, Math.min(16, words[1].length()));
                throw unbelievable("the line is signed with the unknown key " + id);
            }
            if (!isSigned(key, words[2], kind + "\n" + words[3])) {
                throw unbelievable("the signature is wrong");
            }
        }
        return words[3];
    }

    private static boolean isSigned(PublicKey key, String hex, String message) {
        try {
            Signature signature = Signature.getInstance("Ed25519");
            signature.initVerify(key);
            signature.update(message.getBytes(StandardCharsets.UTF_8));
            return signature.verify(HexFormat.of().parseHex(hex));
        } catch (IllegalArgumentException | GeneralSecurityException error) {
            // The signature is not hex, or its length is wrong.
            return false;
        }
    }

    /** Returns the exception for a line that is not trusted or is invalid. */
    static Refused unbelievable(String message) {
        return new Refused(Refused.Reason.UNBELIEVABLE, message);
    }

    /** Returns the SHA-256 digest of bytes in lower-case hex. */
    static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException("every JDK has SHA-256", impossible);
        }
    }
}
