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
    private final Duration silenceMax;
    private final AtomicLong received = new AtomicLong();

    /** A response, complete or with the bytes received before {@code error}. */
    record Response(int status, HttpHeaders headers, byte[] body, IOException error) {}

    /** An unexpected response. */
    static final class StatusException extends IOException {
        private static final long serialVersionUID = 1;

        final int status;

        StatusException(int status) {
            super("the publisher answers " + status);
            this.status = status;
        }
    }

    Fetcher(Duration connectTimeout, Duration silenceMax) {
        // One connection per thread is enough; redirects are not followed.
        this.http =
                HttpClient.newBuilder()
                        .version(HttpClient.Version.HTTP_1_1)
                        .connectTimeout(connectTimeout)
                        .build();
        this.silenceMax = silenceMax;
    }

    /** Body bytes received so far. */
    long received() {
        return received.get();
    }

    /** Fetches a response of at most this many bytes. A partial response is appended to the bytes already received. */
    Response get(URI at, Map<String, String> fields, byte[] here, int most, Duration patience)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(at);
        fields.forEach(request::setHeader);
        Collector collector = new Collector(here, most);
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(request.build(), collector);
        Duration silence = silenceMax.plus(patience);
        long seen = -1;
        try {
            while (true) {
                try {
                    HttpResponse<byte[]> whole = answer.get(silence.toMillis(), TimeUnit.MILLISECONDS);
                    return new Response(whole.statusCode(), whole.headers(), whole.body(), null);
                } catch (TimeoutException quiet) {
                    long now = collector.progress.get();
                    if (now == seen || now == 0) {
                        IOException error = new IOException("no data for " + silence.toMillis() + " ms");
                        return collector.broken(error);
                    }
                    seen = now;
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
        byte[] here = new byte[0];
        IOException last = null;
        for (int attempt = 0; attempt < attempts; attempt++) {
            Map<String, String> fields = here.length == 0 ? Map.of() : Map.of("Range", "bytes=" + here.length + "-");
            Response answer = get(at, fields, here, (int) size, Duration.ZERO);
            if (answer.status != 200 && answer.status != 206) {
                throw new StatusException(answer.status);
            }
            if (answer.error == null && answer.body.length == size) {
                return answer.body;
            }
            last = answer.error;
            if (last == null) {
                last = new IOException("the answer ended after " + answer.body.length + " of " + size + " bytes");
            }
            if (answer.body.length <= here.length || answer.error instanceof TooLargeException) {
                // No progress: an immediate retry would fail as well.
                break;
            }
            here = answer.body;
        }
        throw last;
    }

    static final class TooLargeException extends IOException {
        private static final long serialVersionUID = 1;

        TooLargeException(int most) {
            super("the answer is larger than the " + most + " bytes that belong there");
        }
    }

    /** Collects a body up to its bound. */
    private final class Collector implements HttpResponse.BodyHandler<byte[]>, BodySubscriber<byte[]> {
        private final int most;
        private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
        final AtomicLong progress = new AtomicLong();
        private byte[] bytes;
        private int length;
        // True if the response has the requested file; the body of an error is not needed.
        private boolean belongs;
        private ResponseInfo info;
        private Flow.Subscription subscription;

        Collector(byte[] here, int most) {
            this.most = most;
            bytes = here;
            length = here.length;
        }

        @Override
        public synchronized BodySubscriber<byte[]> apply(ResponseInfo info) {
            this.info = info;
            progress.incrementAndGet();
            String goesOn = "bytes " + length + "-";
            boolean continued =
                    info.statusCode() == 206
                            && info.headers().firstValue("Content-Range").orElse("").startsWith(goesOn);
            if (!continued) {
                length = 0;
            }
            if (info.statusCode() == 206 && !continued) {
                whole.completeExceptionally(new IOException("the publisher answers with another range"));
            }
            long told = info.headers().firstValueAsLong("Content-Length").orElse(0);
            belongs = info.statusCode() == 200 || continued;
            if (belongs && told > most - length) {
                whole.completeExceptionally(new TooLargeException(most));
            } else if (belongs && length + told > bytes.length) {
                bytes = Arrays.copyOf(bytes, (int) (length + told));
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
            if (!belongs) {
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
            whole.complete(gathered());
        }

        private byte[] gathered() {
            return length == bytes.length ? bytes : Arrays.copyOf(bytes, length);
        }

        /** The bytes received before the error, if the head was received. */
        synchronized Response broken(IOException error) throws IOException {
            if (info == null) {
                throw error;
            }
            return new Response(info.statusCode(), info.headers(), gathered(), error);
        }
    }
}
