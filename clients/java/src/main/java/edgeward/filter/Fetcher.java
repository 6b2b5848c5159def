package edgeward.filter;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.ResponseInfo;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;

/** Requests to a publisher, with bounds on the size and the idle time of each response. */
final class Fetcher {
    private final HttpClient http;
    // The timeout for the start of a response, and between two parts of a response.
    private final Duration silenceMax;
    private final AtomicLong received = new AtomicLong();

    /** A response, complete or with the bytes received before {@code error}. */
    record Response(int status, HttpHeaders headers, byte[] body, IOException error) {}

    /** A response with an unexpected status. */
    static final class StatusException extends IOException {
        private static final long serialVersionUID = 1;

        final int status;

        StatusException(int status) {
            super("the publisher responded with status " + status);
            this.status = status;
        }
    }

    Fetcher(Duration connectTimeout, Duration silenceMax) {
        // HTTP/1.1 suffices, because a thread has at most one request in progress. Redirects are not followed.
        this.http =
                HttpClient.newBuilder()
                        .version(HttpClient.Version.HTTP_1_1)
                        .connectTimeout(connectTimeout)
                        .build();
        this.silenceMax = silenceMax;
    }

    /** Returns the number of body bytes in all responses so far. Bodies of errors are not counted. */
    long received() {
        return received.get();
    }

    /**
     * Fetches a response. The publisher may wait for {@code wait} before it responds. A partial response (206) is
     * appended to the bytes already received. The resulting body has at most {@code most} bytes.
     */
    Response get(URI at, Map<String, String> fields, byte[] alreadyReceived, int most, Duration wait)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(at);
        fields.forEach(request::setHeader);
        Collector collector = new Collector(alreadyReceived, most);
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(request.build(), collector);
        Duration silence = silenceMax.plus(wait);
        long lastProgress = -1;
        try {
            while (true) {
                try {
                    HttpResponse<byte[]> whole = answer.get(silence.toMillis(), TimeUnit.MILLISECONDS);
                    return new Response(whole.statusCode(), whole.headers(), whole.body(), null);
                } catch (TimeoutException quiet) {
                    long progress = collector.progress.get();
                    if (progress == lastProgress || progress == 0) {
                        IOException error = new IOException("no data for " + silence.toMillis() + " ms");
                        return collector.broken(error);
                    }
                    lastProgress = progress;
                    silence = silenceMax;
                } catch (ExecutionException failed) {
                    Throwable cause = failed.getCause();
                    return collector.broken(cause instanceof IOException io ? io : new IOException(cause));
                }
            }
        } finally {
            answer.cancel(true);
        }
    }

    /** Fetches a file of known size. Resumes after a broken connection. */
    byte[] file(URI at, long size, int attempts) throws IOException, InterruptedException {
        if (size < 0 || size > Integer.MAX_VALUE - 16) {
            throw new IOException("a file of " + Long.toUnsignedString(size) + " bytes exceeds the size of an array");
        }
        byte[] alreadyReceived = new byte[0];
        IOException last = null;
        for (int attempt = 0; attempt < attempts; attempt++) {
            Map<String, String> fields = alreadyReceived.length == 0 ? Map.of() : Map.of("Range", "bytes=" + alreadyReceived.length + "-");
            Response answer = get(at, fields, alreadyReceived, (int) size, Duration.ZERO);
            if (answer.status != 200 && answer.status != 206) {
                throw new StatusException(answer.status);
            }
            if (answer.error == null && answer.body.length == size) {
                return answer.body;
            }
            last = answer.error;
            if (last == null) {
                last = new IOException("the response ended after " + answer.body.length + " of " + size + " bytes");
            }
            if (answer.body.length <= alreadyReceived.length || answer.error instanceof TooLargeException) {
                // No progress: an immediate retry would fail as well.
                break;
            }
            alreadyReceived = answer.body;
        }
        throw last;
    }

    static final class TooLargeException extends IOException {
        private static final long serialVersionUID = 1;

        TooLargeException(int most) {
            super("the response is larger than the " + most + " bytes expected");
        }
    }

    /** Collects a body up to its bound. */
    private final class Collector implements HttpResponse.BodyHandler<byte[]>, BodySubscriber<byte[]> {
        private final int most;
        private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
        // Increases when the head is received, and when a part of the body is received.
        final AtomicLong progress = new AtomicLong();
        private byte[] bytes;
        private int length;
        // True if the response has the requested file; the body of an error is not needed.
        private boolean hasFile;
        private ResponseInfo info;
        private Flow.Subscription subscription;

        Collector(byte[] alreadyReceived, int most) {
            this.most = most;
            bytes = alreadyReceived;
            length = alreadyReceived.length;
        }

        @Override
        public synchronized BodySubscriber<byte[]> apply(ResponseInfo info) {
            this.info = info;
            progress.incrementAndGet();
            String expectedRange = "bytes " + length + "-";
            boolean continued =
                    info.statusCode() == 206
                            && info.headers().firstValue("Content-Range").orElse("").startsWith(expectedRange);
            if (!continued) {
                length = 0;
            }
            if (info.statusCode() == 206 && !continued) {
                whole.completeExceptionally(new IOException("the publisher responded with another range than requested"));
            }
            long statedLength = info.headers().firstValueAsLong("Content-Length").orElse(0);
            hasFile = info.statusCode() == 200 || continued;
            if (hasFile && statedLength > most - length) {
                whole.completeExceptionally(new TooLargeException(most));
            } else if (hasFile && length + statedLength > bytes.length) {
                bytes = Arrays.copyOf(bytes, (int) (length + statedLength));
            }
            return this;
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return whole;
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            if (whole.isDone()) {
                subscription.cancel();
            } else {
                subscription.request(Long.MAX_VALUE);
            }
        }

        @Override
        public synchronized void onNext(List<ByteBuffer> pieces) {
            progress.incrementAndGet();
            if (!hasFile) {
                return;
            }
            for (ByteBuffer piece : pieces) {
                int count = piece.remaining();
                received.addAndGet(count);
                if (count > most - length) {
                    subscription.cancel();
                    whole.completeExceptionally(new TooLargeException(most));
                    return;
                }
                if (length + count > bytes.length) {
                    long room = Math.min(most, Math.max(length + count, 2L * bytes.length));
                    bytes = Arrays.copyOf(bytes, (int) room);
                }
                piece.get(bytes, length, count);
                length += count;
            }
        }

        @Override
        public void onError(Throwable error) {
            whole.completeExceptionally(error);
        }

        @Override
        public synchronized void onComplete() {
            whole.complete(receivedBytes());
        }

        private byte[] receivedBytes() {
            return length == bytes.length ? bytes : Arrays.copyOf(bytes, length);
        }

        /** Returns the bytes received before the error. Throws the error if no head was received. */
        synchronized Response broken(IOException error) throws IOException {
            if (info == null) {
                throw error;
            }
            return new Response(info.statusCode(), info.headers(), receivedBytes(), error);
        }
    }
}
