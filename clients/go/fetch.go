package filter

// HTTP requests with bounds on size and idle time, and files that are fetched in several requests.

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

func (s statusError) Error() string { return fmt.Sprintf("the publisher answers %d", int(s)) }

// Fetches a file of known size. Resumes after a broken connection.
func (c *Client) file(ctx context.Context, beneath string, size uint64, attempts int) ([]byte, error) {
	if size > math.MaxInt32 && uint64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes exceed the address space of this machine", size)
	}
	var file []byte
	var last error
	for attempt := 0; attempt < attempts; attempt++ {
		before, header := len(file), http.Header{}
		if before > 0 {
			header.Set("Range", fmt.Sprintf("bytes=%d-", before))
		}
		answer, got, err := c.get(ctx, beneath, header, file, int(size), 0)
		if answer == nil {
			return nil, err
		}
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusPartialContent {
			return nil, statusError(answer.StatusCode)
		}
		if err == nil && uint64(len(got)) == size {
			return got, nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("the answer ended after %d of %d bytes", len(got), size)
		}
		if file = got; len(file) <= before || errors.Is(err, errTooLarge) {
			// No progress: an immediate retry would fail as well.
			break
		}
	}
	return nil, last
}

var errTooLarge = errors.New("the answer is larger than allowed")

// Fetches a whole response, with bounds on size and idle time. A partial response is appended to the bytes
// already received. After an error in the body, the response and the bytes received are returned too.
func (c *Client) get(
	ctx context.Context, beneath string, header http.Header, here []byte, most int, patience time.Duration,
) (*http.Response, []byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(c.config.SilenceMax+patience, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+beneath, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header = header
	// Filters are not compressible, and a range of a compressed file is useless.
	request.Header.Set("Accept-Encoding", "identity")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		here = here[:0]
	case http.StatusPartialContent:
		goesOn := fmt.Sprintf("bytes %d-", len(here))
		if !strings.HasPrefix(answer.Header.Get("Content-Range"), goesOn) {
			return nil, nil, errors.New("the publisher answers with another range")
		}
	default:
		return answer, nil, nil
	}
	if answer.ContentLength > int64(most-len(here)) {
		return answer, here, errTooLarge
	}
	if told := len(here) + int(answer.ContentLength); answer.ContentLength > 0 && cap(here) < told {
		here = append(make([]byte, 0, told), here...)
	}
	piece := make([]byte, 64<<10)
	for {
		silence.Reset(c.config.SilenceMax)
		count, err := answer.Body.Read(piece)
		if count > most-len(here) {
			return answer, here, errTooLarge
		}
		here = append(here, piece[:count]...)
		c.mutex.Lock()
		c.counts.Bytes += uint64(count)
		c.mutex.Unlock()
		if err == io.EOF {
			return answer, here, nil
		}
		if err != nil {
			return answer, here, err
		}
	}
}
