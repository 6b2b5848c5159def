package filter

// HTTP requests with limits on size and idle time, and files that are fetched in several requests.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"
)

type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("the publisher responded with status %d", int(s))
}

// Fetches a file of known size, with at most `attempts` requests. If the connection breaks within a response, the next
// request asks for the missing bytes.
func (c *Client) file(ctx context.Context, path string, size uint64, attempts int) ([]byte, error) {
	if size > math.MaxInt32 && uint64(int(size)) != size {
		return nil, fmt.Errorf("a file of %d bytes exceeds the address space of this machine", size)
	}
	var file []byte
	var lastError error
	for attempt := 0; attempt < attempts; attempt++ {
		before, header := len(file), http.Header{}
		if before > 0 {
			header.Set("Range", fmt.Sprintf("bytes=%d-", before))
		}
		response, body, err := c.get(ctx, path, header, file, int(size), 0)
		if response == nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusPartialContent {
			return nil, statusError(response.StatusCode)
		}
		if err == nil && uint64(len(body)) == size {
			return body, nil
		}
		if lastError = err; err == nil {
			lastError = fmt.Errorf("the response ended after %d of %d bytes", len(body), size)
		}
		if file = body; len(file) <= before || errors.Is(err, errTooLarge) {
			// This attempt received no further byte or too many bytes. An immediate retry would probably fail as well.
			break
		}
	}
	return nil, lastError
}

var errTooLarge = errors.New("the response is larger than allowed")

// Fetches a whole response, with limits on size and idle time. The publisher may use the time `wait` in addition to the
// idle time before it responds. A partial response (206) is appended to `received`, a complete response (200) replaces
// it. A response with another status is returned without its body. After an error in the body, the function returns the
// error together with the response and the received bytes. After an error before the body, the response is nil.
func (c *Client) get(
	ctx context.Context, path string, header http.Header, received []byte, bytesMax int, wait time.Duration,
) (*http.Response, []byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idleTimer := time.AfterFunc(c.config.SilenceMax+wait, cancel)
	defer idleTimer.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header = header
	// Filters are not compressible, and a range of a compressed file does not continue the bytes already received.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		received = received[:0]
	case http.StatusPartialContent:
		expectedRange := fmt.Sprintf("bytes %d-", len(received))
		if !strings.HasPrefix(response.Header.Get("Content-Range"), expectedRange) {
			return nil, nil, errors.New("the publisher responded with another range than requested")
		}
	default:
		return response, nil, nil
	}
	if response.ContentLength > int64(bytesMax-len(received)) {
		return response, received, errTooLarge
	}
	if expectedBytes := len(received) + int(response.ContentLength); response.ContentLength > 0 && cap(received) < expectedBytes {
		received = append(make([]byte, 0, expectedBytes), received...)
	}
	buffer := make([]byte, 64<<10)
	for {
		idleTimer.Reset(c.config.SilenceMax)
		count, err := response.Body.Read(buffer)
		if count > bytesMax-len(received) {
			return response, received, errTooLarge
		}
		received = append(received, buffer[:count]...)
		c.mutex.Lock()
		c.counts.Bytes += uint64(count)
		c.mutex.Unlock()
		if err == io.EOF {
			return response, received, nil
		}
		if err != nil {
			return response, received, err
		}
	}
}
