package edgeward.filter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/** Tests with a real publisher on loopback. The test is skipped unless EDGEWARD names the edgeward program. */
@EnabledIfEnvironmentVariable(named = "EDGEWARD", matches = ".+")
final class RealPublisherTest {
    private static final Duration TIMEOUT = Duration.ofMinutes(3);
    private static final String TOKEN = "a-token-that-is-long-enough";

    @Test
    void aClientFollowsEdgewardFilterServe(@TempDir Path folder) throws Exception {
        String program = System.getenv("EDGEWARD");
        Path ids = folder.resolve("ids.txt");
        Path key = folder.resolve("key");
        Path token = folder.resolve("token");
        Files.write(ids, IntStream.range(0, 5000).mapToObj(String::valueOf).toList());
        Files.writeString(token, TOKEN);
        Process keygen = new ProcessBuilder(program, "filter", "keygen", "-o", key.toString()).start();
        assertEquals(0, keygen.waitFor());
        Process publisher =
                new ProcessBuilder(
                                program, "filter", "serve", "--set", "resource", "--source", ids.toString(), "--ids",
                                "integer", "--key", key.toString(), "--token", token.toString(), "--covered-by",
                                "posts", "--state", folder.resolve("state").toString(), "--listen", "127.0.0.1:0",
                                "--json")
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        try (BufferedReader output = publisher.inputReader()) {
            Map<?, ?> line = (Map<?, ?>) Json.parse(output.readLine());
            URI url = URI.create((String) line.get("listening"));
            Keys keys = Keys.of((String) line.get("public_key"));
            try (FilterClient client = FilterClient.start(new FilterConfig(url, keys, Duration.ofSeconds(3)))) {
                follow(client, url, publisher);
            }
        } finally {
            publisher.destroyForcibly().waitFor();
        }
    }

    private static void follow(FilterClient client, URI url, Process publisher) throws Exception {
        assertTrue(client.waitFresh(TIMEOUT), () -> "" + client.status());
        assertTrue(IntStream.range(0, 5000).allMatch(client::mayExist), "no present id is reported as absent");
        List<Integer> absent =
                IntStream.range(1_000_000, 1_001_000).filter(id -> !client.mayExist(id)).boxed().toList();
        assertTrue(absent.size() > 950, absent.size() + " of 1000 absent ids are skipped, with 1 % false positives");

        HttpRequest post =
                HttpRequest.newBuilder(URI.create(url + "/ids"))
                        .header("Authorization", "Bearer " + TOKEN)
                        .POST(BodyPublishers.ofString(absent.get(0) + "\n"))
                        .build();
        assertEquals(200, HttpClient.newHttpClient().send(post, BodyHandlers.ofString()).statusCode());
        assertTrue(client.waitUntil(TIMEOUT, status -> client.mayExist(absent.get(0))), "a posted id is not absent");
        assertTrue(client.status().counts().deltas() > 0, "the id is in a delta");

        publisher.destroyForcibly();
        assertTrue(client.waitUntil(TIMEOUT, status -> !status.fresh()), "without a publisher the filter becomes stale");
        assertEquals(Answer.ASK, client.answer(absent.get(1)));
        assertFalse(client.status().lastError().isEmpty());
    }
}
