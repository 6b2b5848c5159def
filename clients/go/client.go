package filter

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Config says which set to follow, whom to believe, and how old an answer may be.
type Config struct {
	// URL is the set's, as https://ids.example/sets/resource.
	URL string
	// Keys are the publisher's public keys, 64 hex digits each; more than one while keys are exchanged.
	Keys []string
	// TrustTransport believes whoever answers, instead of Keys.
	TrustTransport bool
	// MaxStaleness: an id that was committed longer ago than this is never skipped.
	MaxStaleness time.Duration
	// ClockError is how far this machine's wall clock and the publisher's can be apart, if somebody answers
	// for that. Then manifests may come out of any cache, and count by their date. 0: nobody does.
	ClockError time.Duration
	// SnapshotBytesMax is the size above which snapshots are refused before they are fetched. 0: 1 GiB.
	SnapshotBytesMax uint64
	// OverlayIDsMax bounds the added ids kept beside the snapshot. 0: 2^20.
	OverlayIDsMax int
	// SilenceMax is for an answer to begin, and between two of its pieces. 0: 10 s.
	SilenceMax time.Duration
	// Transport takes the place of http.DefaultTransport.
	Transport http.RoundTripper
	// OnError is told what goes wrong; the client goes on.
	OnError func(error)
	// Now takes the place of the machine's clocks.
	Now func() Now
}

// Client follows a published set in the background and answers at once. It is safe for concurrent use.
type Client struct {
	config Config
	url    string
	keys   Keys
	http   http.Client
	period time.Duration

	mutex     sync.RWMutex
	state     *State
	counts    Counts
	lastError error
	// Closed and replaced whenever something came.
	changed chan struct{}

	// A snapshot may be wanted.
	wanted chan struct{}
	tag    string
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// Counts is what happened so far.
type Counts struct {
	Polls, Failed, Manifests, Proofs, Snapshots, Deltas, Bytes, Refused uint64
}

// Status is how a client is doing.
type Status struct {
	// Fresh says whether absent ids are skipped now, and FreshFor for how much longer if nothing more is learnt.
	Fresh    bool
	FreshFor time.Duration
	// Facts are of the snapshot in use, nil before there is one.
	Facts      *Facts
	OverlayIDs int
	// Serial is the newest manifest's number.
	Serial    uint64
	Counts    Counts
	LastError error
}

// Start begins to follow, until the context ends or Close is called, and returns at once. That the
// publisher cannot be reached is no error: until the filter is there the answer is Ask.
func Start(ctx context.Context, config Config) (*Client, error) {
	at, err := url.Parse(config.URL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil ||
		at.RawQuery != "" || at.Fragment != "" || strings.Trim(at.Path, "/") == "" {
		return nil, fmt.Errorf("filter: %.200q is no set; write https://HOST/sets/NAME", config.URL)
	}
	if config.MaxStaleness <= 0 {
		return nil, errors.New("filter: MaxStaleness is how old an unknown id may be: set it")
	}
	if len(config.Keys) == 0 && !config.TrustTransport {
		return nil, errors.New("filter: give the publisher's Keys, or TrustTransport to believe whoever answers")
	}
	keys, err := ParseKeys(config.Keys...)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	if config.SilenceMax == 0 {
		config.SilenceMax = 10 * time.Second
	}
	if config.OverlayIDsMax == 0 {
		config.OverlayIDsMax = 1 << 20
	}
	if config.Now == nil {
		started := time.Now()
		config.Now = func() Now { return Now{time.Since(started), time.Now().UnixMilli()} }
	}
	if config.OnError == nil {
		config.OnError = func(error) {}
	}
	where := strings.TrimRight(config.URL, "/")
	client := &Client{
		config: config,
		url:    where,
		keys:   keys,
		http: http.Client{
			Transport: config.Transport,
			// Nothing redirects here; what does is somebody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		period: config.MaxStaleness / 3,
		state: NewState(StateConfig{
			Set:              where[strings.LastIndexByte(where, '/')+1:],
			MaxStaleness:     config.MaxStaleness,
			ClockError:       config.ClockError,
			DatesCount:       config.ClockError > 0,
			SnapshotBytesMax: config.SnapshotBytesMax,
			OverlayIDsMax:    config.OverlayIDsMax,
		}),
		changed: make(chan struct{}),
		wanted:  make(chan struct{}, 1),
	}
	if client.period < periodMin {
		client.period = periodMin
	}
	if client.period > periodMax {
		client.period = periodMax
	}
	ctx, client.stop = context.WithCancel(ctx)
	client.done.Add(2)
	go client.pollForever(ctx)
	go client.downloadForever(ctx)
	return client, nil
}

// Close ends the background and waits for it. The filter answers until it is stale.
func (c *Client) Close() {
	c.stop()
	c.done.Wait()
}

// Answer says what to do about an id, in any spelling that its form allows.
func (c *Client) Answer(id string) Answer {
	now := c.config.Now()
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	return c.state.Answer(now, id)
}

// MayExist is false only if a request for the id can be skipped.
func (c *Client) MayExist(id string) bool { return c.Answer(id) != Absent }

// Status says how the client is doing.
func (c *Client) Status() Status {
	now := c.config.Now()
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	status := Status{
		Fresh:      c.state.IsFresh(now),
		FreshFor:   c.state.FreshFor(now),
		OverlayIDs: c.state.OverlayIDs(),
		Serial:     c.state.Serial(),
		Counts:     c.counts,
		LastError:  c.lastError,
	}
	if filter := c.state.Filter(); filter != nil {
		facts := filter.Facts()
		status.Facts = &facts
	}
	return status
}

// WaitFresh waits until absent ids are skipped, or the context ends, whose error it returns.
func (c *Client) WaitFresh(ctx context.Context) error {
	return c.WaitUntil(ctx, func(status Status) bool { return status.Fresh })
}

// WaitUntil waits until holds is true of the status, which is looked at whenever something came.
func (c *Client) WaitUntil(ctx context.Context, holds func(Status) bool) error {
	for {
		c.mutex.RLock()
		changed := c.changed
		c.mutex.RUnlock()
		if holds(c.Status()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	pauseMin  = 10 * time.Millisecond
	periodMin = 50 * time.Millisecond
	// What proxies on the way bear without a byte.
	periodMax    = 25 * time.Second
	backoffFirst = 100 * time.Millisecond
	// With ranges each goes on where the last ended.
	downloadAttempts = 8
)

// Asks for news with one long request after the other: a third of MaxStaleness each, since an answer
// counts from when its request was sent.
func (c *Client) pollForever(ctx context.Context) {
	defer c.done.Done()
	failures := 0
	for ctx.Err() == nil {
		begun := time.Now()
		news, err := c.poll(ctx)
		if err == nil {
			err = c.fetchDeltas(ctx)
		}
		pause := pauseMin
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			pause = c.failed(err, failures)
		default:
			failures = 0
			if !news {
				// A server that did not wait, such as a cache, is not asked without end.
				pause = c.period - time.Since(begun)
			}
		}
		select {
		case c.wanted <- struct{}{}:
		default:
		}
		c.tell()
		sleep(ctx, jittered(pause))
	}
}

// Fetches snapshots beside that, so that a large one keeps nobody from hearing of new ids.
func (c *Client) downloadForever(ctx context.Context) {
	defer c.done.Done()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wanted:
		}
		for ctx.Err() == nil {
			c.mutex.RLock()
			named, _ := c.state.Wants()
			c.mutex.RUnlock()
			if named == nil {
				failures = 0
				break
			}
			err := c.fetchSnapshot(ctx, *named)
			if err == nil {
				err = c.fetchDeltas(ctx)
			}
			if err != nil && ctx.Err() == nil {
				failures++
				sleep(ctx, jittered(c.failed(err, failures)))
			}
			c.tell()
		}
	}
}

// Asks what there is; true if there may be more at once.
func (c *Client) poll(ctx context.Context) (bool, error) {
	dated := c.config.ClockError > 0
	header, beneath, patience := http.Header{}, "", time.Duration(0)
	c.mutex.Lock()
	c.counts.Polls++
	position := c.state.Position()
	c.mutex.Unlock()
	if dated {
		if c.tag != "" {
			header.Set("If-None-Match", c.tag)
		}
	} else {
		var random [16]byte
		if _, err := rand.Read(random[:]); err != nil {
			return false, err
		}
		echo := hex.EncodeToString(random[:])
		c.mutex.Lock()
		c.state.Challenge(c.config.Now(), echo)
		c.mutex.Unlock()
		header.Set("Edgeward-Challenge", echo)
		// RFC 9111 §5.2.1.4: a cache on the way is to ask the publisher.
		header.Set("Cache-Control", "no-cache")
		if position != "" {
			patience = c.period
			beneath = fmt.Sprintf("?have=%s&wait=%d", position, patience.Milliseconds())
		}
	}
	answer, line, err := c.get(ctx, beneath, header, nil, lineBytesMax, patience)
	if err != nil {
		return false, err
	}
	news := false
	switch answer.StatusCode {
	case http.StatusOK:
		manifest, err := ReadManifest(line, c.keys)
		if err == nil {
			c.mutex.Lock()
			if err = c.state.Manifest(c.config.Now(), manifest); err == nil {
				c.counts.Manifests++
			}
			c.mutex.Unlock()
		}
		if err != nil {
			return false, fmt.Errorf("the manifest is refused: %w", err)
		}
		if dated {
			c.tag = answer.Header.Get("ETag")
		}
		news = !dated
	case http.StatusNoContent, http.StatusNotModified:
	default:
		return false, statusError(answer.StatusCode)
	}
	if line := answer.Header.Get("Edgeward-Proof"); line != "" && !dated {
		proof, err := ReadProof([]byte(line), c.keys)
		if err == nil {
			c.mutex.Lock()
			if err = c.state.Proof(c.config.Now(), proof); err == nil {
				c.counts.Proofs++
			}
			c.mutex.Unlock()
		}
		if err != nil {
			return false, fmt.Errorf("the proof is refused: %w", err)
		}
	}
	return news, nil
}

// Fetches the deltas that are wanted now, in their order.
func (c *Client) fetchDeltas(ctx context.Context) error {
	c.mutex.RLock()
	_, wanted := c.state.Wants()
	c.mutex.RUnlock()
	most := uint64(deltaHeaderBytes + 8*c.config.OverlayIDsMax)
	for _, entry := range wanted {
		if entry.Bytes > most {
			return refuse(OverlayFull, "a delta of %d bytes is larger than the %d allowed", entry.Bytes, most)
		}
		file, err := c.file(ctx, "/delta/"+entry.SHA256, entry.Bytes, 1)
		if err == statusError(http.StatusNotFound) {
			// Merged away meanwhile: the next manifest names what took its place.
			return nil
		}
		if err != nil {
			return err
		}
		c.mutex.Lock()
		if err = c.state.Delta(c.config.Now(), file); err == nil {
			c.counts.Deltas++
		}
		c.mutex.Unlock()
		if err != nil {
			return fmt.Errorf("a delta is refused: %w", err)
		}
	}
	return nil
}

func (c *Client) fetchSnapshot(ctx context.Context, named Snapshot) error {
	file, err := c.file(ctx, "/snapshot/"+named.SHA256, named.Bytes, downloadAttempts)
	if err != nil {
		return err
	}
	received := Receive(file)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if now, _ := c.state.Wants(); now == nil || *now != named {
		// Another manifest came meanwhile; what it names is wanted now.
		return nil
	}
	if err := c.state.Snapshot(c.config.Now(), received); err != nil {
		return fmt.Errorf("the snapshot is refused: %w", err)
	}
	c.counts.Snapshots++
	return nil
}

type statusError int

func (s statusError) Error() string { return fmt.Sprintf("the publisher answers %d", int(s)) }

// Fetches a file of known size. What a broken connection left is gone on with.
func (c *Client) file(ctx context.Context, beneath string, size uint64, attempts int) ([]byte, error) {
	if size > math.MaxInt32 && uint64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes are more than this machine addresses", size)
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
			// No progress: another try at once would be the same.
			break
		}
	}
	return nil, last
}

var errTooLarge = errors.New("the answer is larger than what belongs there")

// A whole answer, bounded in size and silence; a partial one goes on from what is here. With an error in
// its middle the answer and what came of it are returned too.
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
	// Filters do not shrink, and a range of a compressed file is of no use.
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

// Notes what went wrong, and says how long to wait.
func (c *Client) failed(err error, failures int) time.Duration {
	c.mutex.Lock()
	c.counts.Failed++
	var refused *Refused
	if errors.As(err, &refused) || errors.Is(err, ErrUnbelievable) {
		c.counts.Refused++
	}
	c.lastError = err
	c.mutex.Unlock()
	c.config.OnError(err)
	if failures > 16 {
		failures = 16
	}
	pause, most := backoffFirst<<(failures-1), c.period
	if most < backoffFirst {
		most = backoffFirst
	}
	if pause > most {
		pause = most
	}
	return pause
}

func (c *Client) tell() {
	c.mutex.Lock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mutex.Unlock()
}

// A little more or less, so that many clients do not ask at the same moment.
func jittered(pause time.Duration) time.Duration {
	var random [2]byte
	// Without randomness there is no jitter, which is not worth an error.
	_, _ = rand.Read(random[:])
	share := 0.8 + 0.4*float64(binary.LittleEndian.Uint16(random[:]))/math.MaxUint16
	pause = time.Duration(float64(pause) * share)
	if pause < pauseMin {
		return pauseMin
	}
	return pause
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
