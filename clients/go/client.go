package filter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Config is the configuration of a client: the set, the trusted keys, and the largest staleness.
type Config struct {
	// URL is the URL of the set, such as https://ids.example/sets/resource.
	URL string
	// Keys are the publisher's public keys, 64 hex digits each; several during a change of keys.
	Keys []string
	// TrustTransport trusts any server that answers, instead of Keys.
	TrustTransport bool
	// MaxStaleness is the longest time for which the client may report a committed id as absent.
	MaxStaleness time.Duration
	// ClockError is the largest difference between this machine's wall clock and the publisher's, if the
	// operator guarantees a limit. Then the date of a manifest proves its freshness, so manifests may come from any
	// cache. 0: no guarantee.
	ClockError time.Duration
	// SnapshotBytesMax is the largest snapshot that is fetched, in bytes. 0: 1 GiB.
	SnapshotBytesMax uint64
	// OverlayIDsMax is the largest number of ids from deltas that are stored in addition to the snapshot. 0: 2^20.
	OverlayIDsMax int
	// SilenceMax is the timeout for the start of a response, and between two parts of a response. 0: 10 s.
	SilenceMax time.Duration
	// Transport replaces http.DefaultTransport.
	Transport http.RoundTripper
	// OnError is called with each error; the client continues.
	OnError func(error)
	// Now replaces the machine's clocks.
	Now func() Now
}

// Client follows a published set in the background. Lookups return at once. A Client is safe for concurrent use.
type Client struct {
	config Config
	url    string
	keys   Keys
	http   http.Client
	// The duration of one long poll, and the longest pause after an error. It is a third of MaxStaleness, but at least
	// periodMin and at most periodMax.
	period time.Duration

	mutex     sync.RWMutex
	state     *State
	counts    Counts
	lastError error
	// Closed and replaced after every change of the status, so that WaitUntil checks the status again.
	changed chan struct{}

	// Signals the download goroutine that a snapshot may be needed.
	downloadSignal chan struct{}
	// The ETag of the newest manifest. It is used only with ClockError: polls are then conditional requests, which a
	// cache may answer.
	etag string
	// Cancels both goroutines.
	stop context.CancelFunc
	// The two goroutines.
	goroutines sync.WaitGroup
}

// Counts are the counters of a client since its start. Failed counts errors of any kind. Refused counts those errors
// for which received data was not used. Manifests, Proofs, Snapshots and Deltas count accepted data. Bytes counts
// received bytes of bodies. A proof is the publisher's signed answer to the random bytes of a poll.
type Counts struct {
	Polls, Failed, Manifests, Proofs, Snapshots, Deltas, Bytes, Refused uint64
}

// Status is the state of a client.
type Status struct {
	// Fresh is true while the filter is fresh, so that an answer may be Absent. FreshFor is the time until the filter
	// becomes stale if no further manifest or proof arrives.
	Fresh    bool
	FreshFor time.Duration
	// Facts are from the header of the snapshot in use. Nil before the first snapshot.
	Facts *Facts
	// OverlayIDs is the number of ids that deltas added since the snapshot.
	OverlayIDs int
	// Serial is the serial number of the newest manifest.
	Serial uint64
	Counts Counts
	// LastError is the newest error, nil if none occurred yet.
	LastError error
}

// Start follows the set until the context ends or Close is called, and returns at once. An unreachable
// publisher is not an error: until the filter is loaded, every answer is Ask, so requests are sent.
func Start(ctx context.Context, config Config) (*Client, error) {
	parsed, err := url.Parse(config.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil ||
		parsed.RawQuery != "" || parsed.Fragment != "" || strings.Trim(parsed.Path, "/") == "" {
		return nil, fmt.Errorf("filter: %.200q is not the URL of a set; write https://HOST/sets/NAME", config.URL)
	}
	if config.MaxStaleness <= 0 {
		return nil, errors.New("filter: MaxStaleness is not set: it is the longest time for which a new id may be reported as absent")
	}
	if len(config.Keys) == 0 && !config.TrustTransport {
		return nil, errors.New("filter: give the publisher's Keys, or TrustTransport to trust any server that answers")
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
	setURL := strings.TrimRight(config.URL, "/")
	client := &Client{
		config: config,
		url:    setURL,
		keys:   keys,
		http: http.Client{
			Transport: config.Transport,
			// Publishers do not redirect, so a redirect is not followed: its status is an error.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		period: config.MaxStaleness / 3,
		state: NewState(StateConfig{
			Set:              setURL[strings.LastIndexByte(setURL, '/')+1:],
			MaxStaleness:     config.MaxStaleness,
			ClockError:       config.ClockError,
			DatesCount:       config.ClockError > 0,
			SnapshotBytesMax: config.SnapshotBytesMax,
			OverlayIDsMax:    config.OverlayIDsMax,
		}),
		changed:        make(chan struct{}),
		downloadSignal: make(chan struct{}, 1),
	}
	if client.period < periodMin {
		client.period = periodMin
	}
	if client.period > periodMax {
		client.period = periodMax
	}
	ctx, client.stop = context.WithCancel(ctx)
	client.goroutines.Add(2)
	go client.pollForever(ctx)
	go client.downloadForever(ctx)
	return client, nil
}

// Close stops the background work and waits for its end. Lookups still use the filter until it is stale.
func (c *Client) Close() {
	c.stop()
	c.goroutines.Wait()
}

// Answer looks up an id. The id may have any spelling that the set's form of ids allows, such as a UUID in upper case.
func (c *Client) Answer(id string) Answer {
	now := c.config.Now()
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	return c.state.Answer(now, id)
}

// MayExist returns false only if the answer is Absent. The request for the id can then be skipped.
func (c *Client) MayExist(id string) bool { return c.Answer(id) != Absent }

// Status returns the state of the client.
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

// WaitFresh waits until the filter is fresh. It returns the context's error if the context ends first.
func (c *Client) WaitFresh(ctx context.Context) error {
	return c.WaitUntil(ctx, func(status Status) bool { return status.Fresh })
}

// WaitUntil waits until the condition holds for the status. The status is checked after every change.
func (c *Client) WaitUntil(ctx context.Context, condition func(Status) bool) error {
	for {
		c.mutex.RLock()
		changed := c.changed
		c.mutex.RUnlock()
		if condition(c.Status()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
