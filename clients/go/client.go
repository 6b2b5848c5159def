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
