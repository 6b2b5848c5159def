package edgeward.filter;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A publisher on loopback that injects faults, and a pair of clocks that only the test advances. */
final class FakePublisher implements AutoCloseable {
    // The PKCS #8 encoding of an Ed25519 secret key is this prefix and the 32 bytes of the key (RFC 8410).
    private static final byte[] PKCS8 = HexFormat.of().parseHex("302e020100300506032b657004220420");

    final List<String> requests = new CopyOnWriteArrayList<>();
    final byte[] snapshot = Vectors.file("static-integer.ewf");
    final byte[] delta = Vectors.file("delta.ewd");
    private final PrivateKey key = key(7);
    private final PrivateKey stranger = key(8);
    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private volatile Now now = new Now(1_000, 1_700_000_000_000L);

    /**
     * The fault to inject, or empty for no fault.
     *
     * <p>Every response: "dead" closes the connection without a response. Manifests and proofs: "forged" signs with an
     * unknown key, "old" sends a lower serial. Files: "cut" omits the last byte, "flipped" changes a bit, "broken"
     * closes each connection after 300 bytes, "flood" sends 655 MB of zeroes.
     */
    volatile String trouble = "";

    FakePublisher() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/", this::answer);
        server.start();
    }

    private static PrivateKey key(int seed) {
        try {
            byte[] encoded = Arrays.copyOf(PKCS8, PKCS8.length + 32);
            Arrays.fill(encoded, PKCS8.length, encoded.length, (byte) seed);
            return KeyFactory.getInstance("Ed25519").generatePrivate(new PKCS8EncodedKeySpec(encoded));
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    FilterConfig config() {
        URI at = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/sets/resource/");
        Keys keys = Keys.of(Vectors.line("key.txt"));
        return new FilterConfig(at, keys, Duration.ofSeconds(3)).clock(() -> now);
    }

    /** Advances the monotonic clock and the wall clock. A negative {@code wallMs} steps the wall clock back. */
    void advanceClocks(long monotonicMs, long wallMs) {
        now = new Now(now.monotonicMs() + monotonicMs, now.wallMs() + wallMs);
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }

    private void answer(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        requests.add(path);
        if (trouble.equals("dead")) {
            exchange.close();
        } else if (path.contains("/snapshot/")) {
            file(exchange, snapshot);
        } else if (path.contains("/delta/")) {
            file(exchange, delta);
        } else {
            manifest(exchange);
        }
    }

    private void manifest(HttpExchange exchange) throws IOException {
        long serial = trouble.equals("old") ? 1 : 1000;
        String echo = exchange.getRequestHeaders().getFirst("Edgeward-Challenge");
        if (echo != null) {
            String proof =
                    "{\"format\":2,\"set\":\"resource\",\"serial\":%d,\"lineage\":305419896,\"epoch_min\":7,"
                            + "\"head\":2,\"lag_ms\":0,\"echo\":\"%s\"}";
            exchange.getResponseHeaders().set("Edgeward-Proof", sign("proof", String.format(proof, serial, echo)));
        }
        // A query states the version that the client has. This publisher has only one version.
        if (exchange.getRequestURI().getQuery() != null && trouble.isEmpty()) {
            exchange.sendResponseHeaders(204, -1);
            exchange.close();
            return;
        }
        String form =
                "{\"format\":2,\"set\":\"resource\",\"serial\":%d,\"lineage\":305419896,\"covers_ms\":%d,"
                        + "\"epoch_min\":7,\"head\":2,"
                        + "\"snapshot\":{\"epoch\":7,\"base\":1,\"bytes\":%d,\"sha256\":\"%s\"},"
                        + "\"deltas\":[{\"from\":1,\"to\":2,\"bytes\":%d,\"sha256\":\"%s\"}]}";
        String json =
                String.format(
                        form,
                        serial,
                        now.wallMs(),
                        snapshot.length,
                        Keys.sha256(snapshot),
                        delta.length,
                        Keys.sha256(delta));
        send(exchange, 200, sign("manifest", json).getBytes(StandardCharsets.UTF_8));
    }

    private String sign(String kind, String json) {
        try {
            Signature signature = Signature.getInstance("Ed25519");
            signature.initSign(trouble.equals("forged") ? stranger : key);
            signature.update(("edgeward filter " + kind + " 1\n" + json).getBytes(StandardCharsets.UTF_8));
            // The line always names the trusted key, also if the stranger's key has signed it.
            return "ed25519 fe812c12f3ab4ce6 " + HexFormat.of().formatHex(signature.sign()) + " " + json;
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    private void file(HttpExchange exchange, byte[] whole) throws IOException {
        String range = exchange.getRequestHeaders().getFirst("Range");
        int from = range == null ? 0 : Integer.parseInt(range.replaceAll("[^0-9]", ""));
        int status = range == null ? 200 : 206;
        if (range != null) {
            exchange.getResponseHeaders()
                    .set("Content-Range", "bytes " + from + "-" + (whole.length - 1) + "/" + whole.length);
        }
        byte[] rest = Arrays.copyOfRange(whole, from, whole.length);
        switch (trouble) {
            case "cut" -> send(exchange, status, Arrays.copyOf(rest, rest.length - 1));
            case "flipped" -> {
                rest[200 % rest.length] ^= 1;
                send(exchange, status, rest);
            }
            case "broken" -> {
                // Each connection breaks after 300 bytes.
                exchange.sendResponseHeaders(status, rest.length);
                OutputStream out = exchange.getResponseBody();
                out.write(rest, 0, Math.min(300, rest.length));
                out.flush();
                exchange.close();
            }
            case "flood" -> {
                // A response of unknown length.
                exchange.sendResponseHeaders(status, 0);
                try (OutputStream out = exchange.getResponseBody()) {
                    for (int n = 0; n < 10_000; n++) {
                        out.write(new byte[65536]);
                    }
                }
            }
            default -> send(exchange, status, rest);
        }
    }

    private static void send(HttpExchange exchange, int status, byte[] body) throws IOException {
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
