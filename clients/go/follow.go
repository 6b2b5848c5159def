package filter

// The background work of a client: its requests, their times, and the handling of failures.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

const (
	// The shortest pause between two polls.
	pauseMin = 10 * time.Millisecond
	// The limits of Client.period, the time of one long poll.
	periodMin = 50 * time.Millisecond
	// Most proxies keep a connection open although a response sends no byte for this time.
	periodMax = 25 * time.Second
	// The pause after the first failure. The pause doubles with each further failure in a row.
	backoffFirst = 100 * time.Millisecond
	// The number of attempts to fetch a file. An attempt requests only the bytes that are still missing.
	downloadAttempts = 8
)

// Sends one long poll after another until the context ends. The publisher's signed response proves that the client was
// up to date when the poll was sent, so a long poll gets an old proof. A poll takes at most a third of MaxStaleness.
func (c *Client) pollForever(ctx context.Context) {
	defer c.goroutines.Done()
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		pollAgain, err := c.poll(ctx)
		if err == nil {
			err = c.fetchDeltas(ctx)
		}
		pause := pauseMin
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			pause = c.recordFailure(err, failures)
		default:
			failures = 0
			if !pollAgain {
				// A server that does not wait, such as a cache, must not be polled without a pause.
				pause = c.period - time.Since(started)
			}
		}
		select {
		case c.downloadSignal <- struct{}{}:
		default:
		}
		c.notifyChanged()
		sleep(ctx, jittered(pause))
	}
}

// Fetches snapshots in a separate goroutine, so that a large snapshot does not delay new ids.
func (c *Client) downloadForever(ctx context.Context) {
	defer c.goroutines.Done()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.downloadSignal:
		}
		for ctx.Err() == nil {
			c.mutex.RLock()
			snapshot, _ := c.state.Wants()
			c.mutex.RUnlock()
			if snapshot == nil {
				failures = 0
				break
			}
			err := c.fetchSnapshot(ctx, *snapshot)
			if err == nil {
				err = c.fetchDeltas(ctx)
			}
			if err != nil && ctx.Err() == nil {
				failures++
				sleep(ctx, jittered(c.recordFailure(err, failures)))
			}
			c.notifyChanged()
		}
	}
}

// Polls the publisher. Returns true if the next poll should follow at once.
func (c *Client) poll(ctx context.Context) (bool, error) {
	// If ClockError limits the error of the clocks, a manifest's date proves that it is fresh. No challenge is needed.
	dated := c.config.ClockError > 0
	header, path, wait := http.Header{}, "", time.Duration(0)
	c.mutex.Lock()
	c.counts.Polls++
	position := c.state.Position()
	c.mutex.Unlock()
	if dated {
		if c.etag != "" {
			header.Set("If-None-Match", c.etag)
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
		// RFC 9111 §5.2.1.4: caches must forward the request to the publisher.
		header.Set("Cache-Control", "no-cache")
		if position != "" {
			wait = c.period
			path = fmt.Sprintf("?have=%s&wait=%d", position, wait.Milliseconds())
		}
	}
	response, line, err := c.get(ctx, path, header, nil, lineBytesMax, wait)
	if err != nil {
		return false, err
	}
	pollAgain, tooLarge := false, error(nil)
	switch response.StatusCode {
	case http.StatusOK:
		manifest, err := ReadManifest(line, c.keys)
		if err == nil {
			c.mutex.Lock()
			if err = c.state.Manifest(c.config.Now(), manifest); err == nil {
				c.counts.Manifests++
			}
			tooLarge = c.state.SnapshotRefused()
			c.mutex.Unlock()
		}
		if err != nil {
			return false, fmt.Errorf("the manifest is refused: %w", err)
		}
		if dated {
			c.etag = response.Header.Get("ETag")
		}
		pollAgain = !dated
	case http.StatusNoContent, http.StatusNotModified:
	default:
		return false, statusError(response.StatusCode)
	}
	if line := response.Header.Get("Edgeward-Proof"); line != "" && !dated {
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
	if tooLarge != nil {
		// The publisher answers at once as long as the client has an older snapshot than the newest. This client cannot
		// fetch the newest, so it must pause between polls.
		pollAgain = false
		c.recordFailure(fmt.Errorf("the snapshot is not fetched: %w", tooLarge), 1)
	}
	return pollAgain, nil
}

// Fetches the deltas that are needed now, in their order.
func (c *Client) fetchDeltas(ctx context.Context) error {
	c.mutex.RLock()
	_, deltas := c.state.Wants()
	c.mutex.RUnlock()
	sizeMax := uint64(deltaHeaderBytes + 8*c.config.OverlayIDsMax)
	for _, entry := range deltas {
		if entry.Bytes > sizeMax {
			return refuse(OverlayFull, "a delta of %d bytes is larger than the %d allowed", entry.Bytes, sizeMax)
		}
		file, err := c.file(ctx, "/delta/"+entry.SHA256, entry.Bytes, 1)
		if err == statusError(http.StatusNotFound) {
			// After the publisher sent the manifest, it merged this delta into another. The next manifest lists that one.
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

// Fetches a snapshot and uses it, unless a newer manifest lists another.
func (c *Client) fetchSnapshot(ctx context.Context, snapshot Snapshot) error {
	file, err := c.file(ctx, "/snapshot/"+snapshot.SHA256, snapshot.Bytes, downloadAttempts)
	if err != nil {
		return err
	}
	received := Receive(file)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if now, _ := c.state.Wants(); now == nil || *now != snapshot {
		// A newer manifest arrived during the download, so the client now needs another snapshot.
		return nil
	}
	if err := c.state.Snapshot(c.config.Now(), received); err != nil {
		return fmt.Errorf("the snapshot is refused: %w", err)
	}
	c.counts.Snapshots++
	return nil
}

// Counts and reports an error. Returns the pause before the next attempt, which grows with the number of failures.
func (c *Client) recordFailure(err error, failures int) time.Duration {
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
	pause, longest := backoffFirst<<(failures-1), c.period
	if longest < backoffFirst {
		longest = backoffFirst
	}
	if pause > longest {
		pause = longest
	}
	return pause
}

// Lets all calls of WaitUntil check the status again.
func (c *Client) notifyChanged() {
	c.mutex.Lock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mutex.Unlock()
}

// Returns the pause changed by up to 20 % at random, so that many clients do not poll at the same moment.
func jittered(pause time.Duration) time.Duration {
	var random [2]byte
	// Without random numbers there is no jitter, which is acceptable.
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
